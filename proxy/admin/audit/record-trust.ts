import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { trustedCasByAgent } from '../../../db/principals/trusted-cas.ts'
import { readSetting, writeSetting } from '../../../db/settings.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'

/** Agents whose rows are written in one unit. */
const AT_ONCE = 128

interface TrustRecording {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: string
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Records once which attached CAs vouch for each agent enrolled by its SPIFFE id before that was kept
 * (docs/ledger.md#replay). After a crash rows are repeated; they say the same. Resolves with their number.
 */
export async function recordTrustedCas({
  database,
  ledger,
  configDigest,
  at,
}: TrustRecording): Promise<number> {
  if ((await readSetting(database, 'trusted_cas_recorded')) !== undefined) return 0
  const agents = [...(await trustedCasByAgent(database))]
  for (const group of portionsOf(agents, AT_ONCE)) {
    const entries = group.map(([subject, digests]) =>
      noteEntry(
        { action: 'authority.trusted_cas', detail: { subject, trusted_cas: digests } },
        at,
        configDigest,
      ),
    )
    await ledger.commit({ entries })
  }
  await ledger.commit({
    statements: [writeSetting(database, 'trusted_cas_recorded', 'true', at)],
    entries: [],
  })
  return agents.length
}
