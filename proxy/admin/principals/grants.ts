import { z } from 'zod'
import { findGrant, grantsOf, listGrants, type PeopleGrant, removeGrants } from '../../../db/people/grants.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { timestamp } from '../../../db/support/statement.ts'
import type { AuditNote } from '../../../plugins/audit/entries.ts'
import { type GrantEnd, grantEndedNote } from '../../../plugins/people/rows.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { commitChanges } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { USER } from '../operation/kinds.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { capabilityToken, idParams, instant, sha256 } from '../operation/shapes.ts'
import { principalOf } from './view.ts'

const grant = z
  .strictObject({
    grant: z.string(),
    client: z.strictObject({
      host: z.string(),
      id_sha256: sha256,
      kind: z.enum(['cimd', 'registered', 'sealed']),
    }),
    kind: z.enum(['code', 'id_jag', 'device']),
    scope: z.array(capabilityToken).nullable().meta({ description: 'Null: all that the user holds.' }),
    resource: z.string(),
    bound: z.enum(['key', 'none']).meta({ description: 'The grade of its calls.' }),
    jkt: z.string().nullable(),
    amr: z.array(z.string()),
    issued_at: instant,
    expires_at: instant,
  })
  .meta({ id: 'Grant' })

const viewOf = ({ id, client, issuedAt, expiresAt, principalId: _, ...one }: PeopleGrant) => ({
  grant: id,
  client: { host: client.host, id_sha256: client.idSha256, kind: client.kind },
  ...one,
  issued_at: timestamp(issuedAt),
  expires_at: timestamp(expiresAt),
})

/** GET /v1/admin/users/{id}/grants: newest first, those that are over left out. */
export const listUserGrants = readOperation({
  name: 'listUserGrants',
  summary: 'Lists what a user has allowed clients that call without a certificate.',
  takes: { params: idParams },
  output: z.strictObject({ grants: z.array(grant) }),
  reasons: ['not_found'],
  run: async (context, { params: { id } }, { at }) => {
    await principalOf(context, USER, id)
    const grants = await grantsOf(context.database, id)
    return { value: { grants: grants.filter(({ expiresAt }) => at < expiresAt).map(viewOf) } }
  },
})

export const endGrant = emptyOperation({
  name: 'endGrant',
  demands: 'admin.enroll',
  action: 'grant.ended',
  summary: 'Ends a grant at once: the next call by it is refused, and its streams are cut.',
  // It lets nobody do more.
  harmless: true,
  takes: { params: idParams },
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { id } }, caller) => {
    const found = await findGrant(context.database, id)
    if (!found) throw notFound('There is no grant with this id. GET /v1/admin/users/{id}/grants lists them.')
    await end(context, caller, [found])
  },
})

/** The grants that one request ends: each is a row of one transaction. */
const MAX_ENDED = 200

/** POST /v1/admin/grants/end: those of a user, of the clients of a host, or all; 200 at a time. */
export const endGrants = operation({
  name: 'endGrants',
  demands: 'admin.enroll',
  action: 'grant.ended',
  summary: 'Ends the grants of a user, of the clients of a host, or all of them: 200 at once.',
  harmless: true,
  takes: {
    body: z.union([
      z.strictObject({ user: z.string().min(1).max(256) }),
      z.strictObject({ client_host: z.string().min(1).max(256) }),
      z.strictObject({ all: z.literal(true) }),
    ]),
  },
  output: z.strictObject({
    ended: z.int(),
    more: z.boolean().meta({ description: 'True: there are more. Send it again.' }),
  }),
  reasons: ['precondition_failed', 'audit_unavailable'],
  example: { user: 'acme::user::alice' },
  run: async (context, { body }, caller) => {
    const of = 'user' in body ? { user: body.user } : 'all' in body ? {} : { host: body.client_host }
    const found = await listGrants(context.database, of, MAX_ENDED + 1)
    const some = found.slice(0, MAX_ENDED)
    if (some.length > 0) await end(context, caller, some)
    return { value: { ended: some.length, more: found.length > MAX_ENDED } }
  },
})

async function end(
  context: AdminContext,
  caller: AdminCaller,
  grants: readonly PeopleGrant[],
): Promise<void> {
  const ids = [...new Set(grants.map(({ principalId }) => principalId))]
  const users = await Promise.all(ids.map((id) => findPrincipal(context.database, 'user', id)))
  const refs = new Map(ids.map((id, at) => [id, users[at]?.principal_ref ?? id]))
  await commitChanges(context, caller, {
    statements: [
      removeGrants(
        context.database,
        grants.map(({ id }) => id),
      ),
    ],
    notes: grants.map((one) => grantEndedNote(one, refs.get(one.principalId) ?? one.principalId, 'operator')),
  })
}

/** The statements and notes that end all grants of a user, in the unit of what ends them. */
export async function endAllGrantsOf(
  { database }: Pick<AdminContext, 'database'>,
  { principal_id: id, principal_ref: ref }: { readonly principal_id: string; readonly principal_ref: string },
  why: GrantEnd,
): Promise<{
  readonly statements: readonly ReturnType<typeof removeGrants>[]
  readonly notes: readonly AuditNote[]
}> {
  const grants = await grantsOf(database, id)
  if (grants.length === 0) return { statements: [], notes: [] }
  return {
    statements: [
      removeGrants(
        database,
        grants.map((one) => one.id),
      ),
    ],
    notes: grants.map((one) => grantEndedNote(one, ref, why)),
  }
}
