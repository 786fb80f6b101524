import { authorityDetail, authorityState } from '../../../db/principals/authority.ts'
import { type CertificateHolder, endCertificatesOf } from '../../../db/principals/issuers.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { touchRevision } from '../../../db/principals/write.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import type { AuditNote } from '../../../plugins/audit/entries.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { changeAuthor } from '../operation/change.ts'
import type { AdminContext, ChangeAuthorship } from '../operation/context.ts'

/** The principals that are read in one turn of the loop. */
const AT_ONCE = 20

/**
 * Returns the statements that end certificates of a CA, and the row of each holder, which says the whole state
 * that is left (docs/ledger.md#authority). The statements change nothing if a holder has changed since.
 */
export async function endedCertificates(
  { database }: AdminContext,
  caller: ChangeAuthorship,
  of: Parameters<typeof endCertificatesOf>[1],
  holders: readonly CertificateHolder[],
): Promise<{ readonly statements: readonly LedgerStatement[]; readonly notes: readonly AuditNote[] }> {
  const [statements, notes]: [LedgerStatement[], AuditNote[]] = [[endCertificatesOf(database, of)], []]
  for (const [index, { principal_type: type, principal_id: id, thumbprints: ended }] of holders.entries()) {
    if (index % AT_ONCE === 0) await eventLoopTurn()
    const record = await findPrincipal(database, type, id)
    if (!record) continue
    const state = await authorityState(database, record, caller.at)
    const thumbprints = state.thumbprints.filter(([thumbprint]) => !ended.includes(thumbprint))
    statements.push(touchRevision(database, { type, id, revision: record.revision, ...changeAuthor(caller) }))
    notes.push({
      action: `${type}.certificate_ended`,
      detail: {
        ...authorityDetail(record, record.authority_revision + 1, { ...state, thumbprints }),
        ended,
      },
    })
  }
  return { statements, notes }
}
