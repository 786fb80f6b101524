import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import {
  deleteMcpBinding,
  insertMcpBinding,
  listMcpBindings,
  type NamedMcpBinding,
} from '../../../db/mcp/bindings.ts'
import { findMcpResource } from '../../../db/mcp/resources.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import { Refusal, unprocessable } from '../../../plugins/refusal.ts'
import { json, type Reply } from '../../http/reply.ts'
import { type AdminContext, change } from '../change.ts'
import { parse } from '../parse.ts'
import type { AdminBodyRequest, AdminRequest } from '../principals/principals.ts'

const TYPES: readonly PrincipalType[] = ['agent', 'user', 'workload']

const id = z.string().min(1).max(256)
const newBinding = z.strictObject({
  agent_id: id,
  resource_id: id,
  principal_type: z.enum(TYPES).exactOptional(),
})
const filter = z.strictObject({ agent_id: id.exactOptional(), resource_id: id.exactOptional() })

/** POST /v1/admin/mcp-resources/bindings: lets a principal of any type reach a resource (WIRE.md §2). */
export const bindPrincipal =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const { agent_id, resource_id, principal_type: type } = parse(newBinding, facts.json)
    const { database } = context
    const principal = await principalOf(database, agent_id, type ? [type] : TYPES)
    const resource = await findMcpResource(database, resource_id)
    if (!principal || !resource) {
      throw unprocessable([
        ...(principal ? [] : [{ field: 'agent_id', message: 'is not a principal of this service' }]),
        ...(resource ? [] : [{ field: 'resource_id', message: 'is not a resource of this service' }]),
      ])
    }
    const { principal_type, principal_id } = principal
    const binding_id = `mcpb_${randomBytes(12).toString('hex')}`
    const binding = { binding_id, principal_type, principal_id, resource_id }
    await change(context, facts, {
      action: 'mcp_binding.created',
      detail: detailOf({ ...binding, resource_name: resource.name }),
      statements: [insertMcpBinding(database, { ...binding, at: facts.at })],
    })
    return json(201, shown(await bindingOf(context, binding_id)), { etag: ETAG })
  }

/** GET /v1/admin/mcp-resources/bindings: a bare array, oldest first; `?agent_id=&resource_id=` narrows it. */
export const listBindings =
  ({ database }: AdminContext) =>
  async ({ query }: AdminRequest): Promise<Reply> => {
    const asked = parse(filter, Object.fromEntries(new URLSearchParams(query)))
    const found = await listMcpBindings(database, {
      principalId: asked.agent_id,
      resourceId: asked.resource_id,
    })
    return json(200, found.map(shown))
  }

/** GET /v1/admin/mcp-resources/bindings/{binding_id} */
export const getBinding =
  (context: AdminContext) =>
  async ({ params }: AdminRequest): Promise<Reply> =>
    json(200, shown(await bindingOf(context, params.binding_id)), { etag: ETAG })

/** DELETE /v1/admin/mcp-resources/bindings/{binding_id}: holds at the principal's very next call. */
export const revokeBinding =
  (context: AdminContext) =>
  async (facts: AdminRequest): Promise<Reply> => {
    const binding = await bindingOf(context, facts.params.binding_id)
    await change(context, facts, {
      action: 'mcp_binding.revoked',
      detail: detailOf(binding),
      statements: [deleteMcpBinding(context.database, binding.binding_id)],
    })
    return { status: 204 }
  }

/** A binding is made and revoked, and never anything in between. */
const ETAG = '"1"'

async function principalOf(
  database: Database,
  id: string,
  types: readonly PrincipalType[],
): Promise<PrincipalRecord | undefined> {
  for (const type of types) {
    const found = await findPrincipal(database, type, id)
    if (found) return found
  }
  return undefined
}

async function bindingOf(
  { database }: AdminContext,
  bindingId: string | undefined,
): Promise<NamedMcpBinding> {
  const [found] = bindingId === undefined ? [] : await listMcpBindings(database, { bindingId })
  if (!found) throw new Refusal('not_found', { message: 'There is no binding of this id.' })
  return found
}

const detailOf = (binding: Omit<NamedMcpBinding, 'created_at'>) => ({
  subject: binding.principal_id,
  subject_type: binding.principal_type,
  binding_id: binding.binding_id,
  resource_id: binding.resource_id,
  resource: binding.resource_name,
})

const shown = ({
  binding_id,
  principal_id,
  principal_type,
  resource_id,
  resource_name,
  created_at,
}: NamedMcpBinding) => ({
  binding_id,
  agent_id: principal_id,
  principal_type,
  resource_id,
  resource_name,
  created_at,
})
