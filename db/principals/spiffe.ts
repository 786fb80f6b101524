import type { Database } from '../database.ts'
import { candidateSetOf, type PinnedPrincipal, storedCapabilities } from './pins.ts'

/** An agent that is known by its SPIFFE id, whichever SVID it presents. */
export interface SpiffePrincipal extends PinnedPrincipal {
  /** The CAs its SVIDs must chain to. PEM; null: the attached ones that vouch for it. */
  readonly bundlePem: string | null
}

/** The agent that was enrolled by this SPIFFE id; undefined if none was. Does NOT look at any certificate. */
export async function spiffePrincipal(
  { kysely }: Database,
  spiffeId: string,
): Promise<SpiffePrincipal | undefined> {
  const row = await kysely
    .selectFrom('internal_agents')
    .select([
      'agent_id',
      'capabilities',
      'candidate',
      'candidate_since',
      'is_active',
      'dpop_jkt',
      'previous_dpop_jkt',
      'previous_dpop_jkt_until',
      'authority_revision',
    ])
    .select('spiffe_bundle')
    .where('spiffe_id', '=', spiffeId)
    .where('enrollment_method', '=', 'spiffe')
    .executeTakeFirst()
  return (
    row && {
      principal_id: row.agent_id,
      principal_ref: row.agent_id,
      principal_type: 'agent',
      capabilities: storedCapabilities(row.capabilities),
      candidate: candidateSetOf(row.candidate, row.candidate_since),
      is_active: row.is_active === 1,
      dpop_jkt: row.dpop_jkt,
      previous_dpop_jkt: row.previous_dpop_jkt,
      previous_dpop_jkt_until: row.previous_dpop_jkt_until,
      authority_revision: row.authority_revision,
      is_current: true,
      grace_until: null,
      bundlePem: row.spiffe_bundle,
    }
  )
}
