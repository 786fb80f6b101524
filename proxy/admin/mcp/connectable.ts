import type { AccountHolder } from '../../../db/mcp/accounts.ts'
import { boundResources } from '../../../db/mcp/bindings.ts'
import { findMcpResource, listMcpResources, type McpResource } from '../../../db/mcp/resources.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { ConsentRequest } from '../../mcp/accounts/consent-links.ts'
import type { AdminContext } from '../operation/context.ts'

/** An account that may be connected: of whom, and where. */
export interface ConnectableAccount {
  readonly holder: AccountHolder
  readonly resource: McpResource
  /** Empty: all of the resource's settings. */
  readonly scopes: readonly string[]
}

type Sources = Pick<AdminContext, 'database'>

const holderOf = ({ principal_id: id, principal_type: type, principal_ref: ref }: PrincipalRecord) => ({
  ...{ id, type, ref },
})

/**
 * Finds what a request asks to be connected, as things are now; null: the server is gone, disabled or takes no
 * accounts, or the principal is gone, deactivated, or neither bound to it nor its reader.
 */
export async function connectableFor(
  sources: Sources,
  { principal: { type, id }, resourceId, scopes }: ConsentRequest,
): Promise<ConnectableAccount | null> {
  const { database } = sources
  const [resource, principal] = [
    await findMcpResource(database, resourceId),
    await findPrincipal(database, type, id),
  ]
  if (!resource || !principal?.is_active) return null
  const all = await resourcesOfAccounts(sources, principal)
  if (!all.some(({ resource_id: one }) => one === resourceId)) return null
  const { scopes: settings = [] } = resource.oauth ?? {}
  return { holder: holderOf(principal), resource, scopes: scopes.filter((one) => settings.includes(one)) }
}

/** Lists the servers that a principal may have an account at: those that it is bound to, or reads. */
export async function resourcesOfAccounts(
  { database }: Sources,
  { principal_id: id, principal_type: type, principal_ref: ref }: PrincipalRecord,
): Promise<readonly McpResource[]> {
  const bound = await boundResources(database, type, id)
  const ids = new Set(bound.map(({ resource_id: one }) => one))
  return (await listMcpResources(database)).filter(
    ({ resource_id: one, auth_type: auth, enabled, oauth }) =>
      auth === 'oauth' && enabled && (ids.has(one) || oauth?.reader === ref),
  )
}
