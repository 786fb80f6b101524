import { z } from 'zod'
import { findAccount, type UpstreamAccount } from '../../../db/mcp/accounts.ts'
import { findMcpResource } from '../../../db/mcp/resources.ts'
import { findPrincipalOf } from '../../../db/principals/read.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { endingOfRows } from '../../mcp/accounts/ending.ts'
import { commitChanges } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { emptyOperation, readOperation } from '../operation/operation.ts'
import { idParams, instant } from '../operation/shapes.ts'

const TYPES = ['agent', 'user', 'workload'] as const

const account = z
  .strictObject({
    account: z.string(),
    principal: z.string(),
    principal_type: z.enum(TYPES),
    resource_id: z.string(),
    resource: z.string().nullable().meta({ description: 'The name of the server; null: it is gone.' }),
    issuer: z.string(),
    scopes: z.array(z.string()).meta({ description: 'As the issuer granted them.' }),
    bound: z.boolean().meta({ description: 'True: its tokens are bound to a key of the account.' }),
    connected_at: instant,
    refreshed_at: instant.nullable(),
    expires_at: instant.nullable().meta({ description: 'The end of the present access token.' }),
  })
  .meta({ id: 'UpstreamAccount' })

async function viewOf({ database }: AdminContext, one: UpstreamAccount) {
  const resource = await findMcpResource(database, one.resourceId)
  const instantOf = (at: number | null): string | null => (at === null ? null : timestamp(at))
  return {
    account: one.id,
    principal: one.holder.id,
    // Operators call no tools, so they have none.
    principal_type: one.holder.type as (typeof TYPES)[number],
    resource_id: one.resourceId,
    resource: resource?.name ?? null,
    issuer: one.issuer,
    scopes: [...one.scopes],
    bound: one.bound,
    connected_at: timestamp(one.connectedAt),
    refreshed_at: instantOf(one.refreshedAt),
    expires_at: instantOf(one.expiresAt),
  }
}

/** GET /v1/admin/accounts: those of one principal, the newest first. Never their tokens. */
export const listAccountsOf = readOperation({
  name: 'listUpstreamAccounts',
  summary: 'Lists the accounts of a principal at MCP servers.',
  takes: { query: z.strictObject({ principal: z.string().min(1).max(256) }) },
  output: z.strictObject({ accounts: z.array(account) }),
  reasons: ['not_found'],
  run: async (context, { query: { principal: id } }) => {
    const principal = await findPrincipalOf(context.database, TYPES, id)
    if (!principal) throw notFound('There is no agent, user or workload with this id.')
    const holder = { id, type: principal.principal_type }
    const found = (await context.accounts?.accounts.listOf(holder)) ?? []
    return { value: { accounts: await Promise.all(found.map((one) => viewOf(context, one))) } }
  },
})

/** DELETE /v1/admin/accounts/{id}: from the next call on. The issuer is asked to revoke its tokens. */
export const endAccount = emptyOperation({
  name: 'endUpstreamAccount',
  demands: 'admin.enroll',
  action: 'upstream_account.ended',
  summary: 'Ends an account at an MCP server at once, and has its tokens revoked by the issuer.',
  // It lets nobody do more.
  harmless: true,
  takes: { params: idParams },
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { id } }, caller) => {
    const found = await findAccount(context.database, id)
    if (!found) throw notFound('There is no account with this id. GET /v1/admin/accounts lists them.')
    await commitChanges(context, caller, await endingOfRows(context, [found], 'operator', caller.at))
  },
})
