import type { AccountEnd, UpstreamAccount } from '../../../db/mcp/accounts.ts'
import type { AuditNote } from '../../../plugins/audit/entries.ts'

interface ConnectedFacts {
  /** The way in which the issuer knows us. */
  readonly client: string
  /** A commitment to the subject at the issuer (docs/ledger.md#commitments); null: it has not said it. */
  readonly subjectSha256: string | null
}

/** The content of the row that connects an account. */
export const accountConnectedNote = (
  { id, holder, resourceId, issuer, scopes, bound }: UpstreamAccount,
  { client, subjectSha256 }: ConnectedFacts,
): AuditNote => ({
  action: 'upstream_account.connected',
  detail: {
    ...{ subject: holder.ref, account: id, resource_id: resourceId, issuer, scopes: [...scopes] },
    ...{ client, bound, issuer_subject_sha256: subjectSha256 },
  },
})

/** The content of the row that ends an account, in the unit that removes it. */
export const accountEndedNote = (
  { id, holder, resourceId }: Pick<UpstreamAccount, 'id' | 'holder' | 'resourceId'>,
  why: AccountEnd,
): AuditNote => ({
  action: 'upstream_account.ended',
  detail: { subject: holder.ref, account: id, resource_id: resourceId, why },
})
