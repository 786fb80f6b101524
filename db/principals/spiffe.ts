import type { Database } from '../database.ts'
import { candidateSetOf, type PinnedPrincipal, storedCapabilities } from './pins.ts'

/** PEM, the end of its grace (RFC 3339), and the digests of its CAs, as rows say them. */
export type PreviousBundle = readonly [pem: string, until: string, digests: readonly string[]]

/** An agent that is known by its SPIFFE id, whichever SVID it presents. */
export interface SpiffePrincipal extends PinnedPrincipal {
  /** The CAs of its own that its SVIDs may chain to. PEM; null: only attached ones vouch for it. */
  readonly bundlePem: string | null
  /** The followed bundle that these are a copy of. */
  readonly follows: string | null
  /** The digests of these CAs as rows say them, printed. */
  readonly bundleDigests: string | null
  /** The ETag of the agent. */
  readonly revision: number
  /** The bundles before it, newest first. */
  readonly previousBundles: () => readonly PreviousBundle[]
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
    .select(['spiffe_bundle', 'spiffe_bundle_digests', 'previous_spiffe_bundles'])
    .select(['followed_bundle', 'revision'])
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
      follows: row.followed_bundle,
      bundleDigests: row.spiffe_bundle_digests,
      previousBundles: () => JSON.parse(row.previous_spiffe_bundles ?? '[]'),
      revision: row.revision,
    }
  )
}

/** The names of the bundles that agents follow. */
export async function followedBundleNames({ kysely }: Database): Promise<readonly string[]> {
  const rows = await kysely
    .selectFrom('internal_agents')
    .select('followed_bundle')
    .distinct()
    .where('followed_bundle', 'is not', null)
    .execute()
  return rows.flatMap(({ followed_bundle: name }) => name ?? [])
}

/** The SPIFFE ids of agents that follow a bundle and hold another one than this: PEM. The first of them. */
export async function staleFollowers(
  { kysely }: Database,
  name: string,
  pem: string,
): Promise<readonly string[]> {
  const rows = await kysely
    .selectFrom('internal_agents')
    .select('spiffe_id')
    .where('followed_bundle', '=', name)
    .where('enrollment_method', '=', 'spiffe')
    .where((row) => row.or([row('spiffe_bundle', 'is', null), row('spiffe_bundle', '<>', pem)]))
    .limit(MAX_FOLLOWERS)
    .execute()
  return rows.flatMap(({ spiffe_id: id }) => id ?? [])
}

const MAX_FOLLOWERS = 100
