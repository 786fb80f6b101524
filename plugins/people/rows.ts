import type { PeopleGrant } from '../../db/people/grants.ts'
import type { JsonObject } from '../../db/support/json.ts'
import { timestamp } from '../../db/support/statement.ts'
import type { AuditNote } from '../audit/entries.ts'

/** The reason that a grant ended (docs/ledger.md#actions). */
export type GrantEnd = 'person' | 'operator' | 'reuse' | 'replaced' | 'logout' | 'deactivated' | 'erased'

/** The client of a grant, as rows say it. */
export const clientDetail = ({ client }: Pick<PeopleGrant, 'client'>): JsonObject => ({
  host: client.host,
  id_sha256: client.idSha256,
  kind: client.kind,
})

/** The content of the row that issues a grant. `ref`: the name that the ledger knows its user by. */
export const grantIssuedNote = (grant: PeopleGrant, ref: string): AuditNote => ({
  action: 'grant.issued',
  detail: {
    subject: ref,
    grant: grant.id,
    client: clientDetail(grant),
    kind: grant.kind,
    scope: grant.scope && [...grant.scope],
    resource: grant.resource,
    bound: grant.bound,
    jkt: grant.jkt,
    amr: [...grant.amr],
    expires_at: timestamp(grant.expiresAt),
  },
})

/** The content of the row that ends a grant, in the unit that removes it. */
export const grantEndedNote = ({ id }: Pick<PeopleGrant, 'id'>, ref: string, why: GrantEnd): AuditNote => ({
  action: 'grant.ended',
  detail: { subject: ref, grant: id, why },
})

/** The detail of `token.issued` for a token of a grant. `scope`: as the token says it. */
export const grantTokenDetail = (
  { id, bound }: Pick<PeopleGrant, 'id' | 'bound'>,
  scope: string,
): JsonObject => ({
  scope,
  grant: id,
  bound,
})
