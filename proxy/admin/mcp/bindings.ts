import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import {
  deleteMcpBinding,
  insertMcpBinding,
  listMcpBindings,
  type NamedMcpBinding,
} from '../../../db/mcp/bindings.ts'
import {
  type BoundPrincipal,
  bindingsOfPrincipals,
  countBindings,
  findBoundPrincipals,
} from '../../../db/mcp/bound.ts'
import { findMcpResource, type McpResource } from '../../../db/mcp/resources.ts'
import { findPrincipal, findPrincipalOf, type PrincipalRecord } from '../../../db/principals/read.ts'
import { notFound, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn, mapInBatches } from '../../../plugins/turns.ts'
import { endingOf } from '../../mcp/accounts/ending.ts'
import { changeAuthor, commitChange, commitChanges } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { author, instant } from '../operation/shapes.ts'
import { serializedByPrincipal } from '../principals/authority.ts'

/** The principals that are shown at once. */
const ROWS = 100

const key = z.string().max(300)

const bound = z.strictObject({
  principal_type: z.enum(['agent', 'user', 'workload']),
  principal_id: z.string(),
  name: z.string(),
  bindings: z
    .record(z.string(), z.string())
    .meta({ description: 'The id of its binding to each resource, by the id of the resource.' }),
})

const CURSOR = /^(agent|user|workload) (.+)$/

const cursor = key.regex(CURSOR, 'is not a cursor of this list').transform((text) => {
  const [, type = '', id = ''] = CURSOR.exec(text) ?? []
  return { principal_type: type as 'agent', principal_id: id }
})

/**
 * Lists the principals bound to anything by type and id, a hundred at once. `q`: words of its id or shown
 * name. `bound`: how many are bound to each resource, listed or not.
 */
export const listBoundPrincipals = readOperation({
  name: 'listBoundPrincipals',
  summary: 'Lists the principals that are bound to MCP servers, with their bindings.',
  takes: { query: z.strictObject({ q: key.exactOptional(), cursor: cursor.exactOptional() }) },
  output: z.strictObject({ principals: z.array(bound), bound: z.record(z.string(), z.int()) }),
  paged: true,
  run: async ({ database }, { query: { q = '', cursor: after } }) => {
    const words = q
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== '')
    const wanted = ({ principal_id: id, shown_as: name }: BoundPrincipal): boolean => {
      const text = `${id} ${name ?? ''}`.toLowerCase()
      return words.every((word) => text.includes(word))
    }
    // One more than is shown, to know whether there is a next page.
    const asked = { after, most: ROWS + 1, ...(words.length > 0 && { wanted }) }
    const found = await findBoundPrincipals(database, asked, eventLoopTurn)
    const shown = found.slice(0, ROWS)
    const own = new Map<string, Record<string, string>>()
    for (const [type, some] of Map.groupBy(shown, (one) => one.principal_type)) {
      const ids = some.map(({ principal_id: id }) => id)
      for (const {
        principal_id: id,
        resource_id: resource,
        binding_id: binding,
      } of await bindingsOfPrincipals(database, type, ids)) {
        const name = `${type} ${id}`
        own.set(name, { ...own.get(name), [resource]: binding })
      }
    }
    const principals = shown.map(({ principal_type: type, principal_id: id, shown_as: name }) => ({
      // Nobody else is ever bound.
      principal_type: type as 'agent',
      principal_id: id,
      name: name ?? id,
      bindings: own.get(`${type} ${id}`) ?? {},
    }))
    const last = found.length > ROWS ? shown.at(-1) : undefined
    return {
      value: { principals, bound: Object.fromEntries(await countBindings(database)) },
      next: last ? { ...(q !== '' && { q }), cursor: `${last.principal_type} ${last.principal_id}` } : null,
    }
  },
})

const TYPES = ['agent', 'user', 'workload'] as const

const id = z.string().min(1).max(256)
const newBinding = z.strictObject({
  agent_id: id.meta({ description: 'The id of a principal of any type.' }),
  resource_id: id,
  principal_type: z.enum(TYPES).exactOptional(),
})
const filter = z.strictObject({ agent_id: id.exactOptional(), resource_id: id.exactOptional() })
const params = z.object({ binding_id: z.string() })

const binding = z
  .strictObject({
    binding_id: z.string(),
    agent_id: z.string(),
    principal_type: z.enum(TYPES),
    resource_id: z.string(),
    resource_name: z.string(),
    created_at: instant,
    created_by: author,
    changed_by: author,
  })
  .meta({ id: 'McpBinding' })

export const bindPrincipal = operation({
  name: 'createMcpBinding',
  demands: 'admin.grant',
  action: 'mcp_binding.created',
  summary: 'Lets a principal reach an MCP resource. Its capabilities say what it may do there.',
  takes: { body: newBinding },
  rehearses: (_context, { body: { agent_id: principal, resource_id: resource } }) => [
    { principal, resource, bound: true },
  ],
  output: binding,
  status: 201,
  revised: true,
  reasons: ['conflict', 'audit_unavailable'],
  example: { agent_id: 'acme::daily-report', resource_id: 'mcpr_0123456789abcdef01234567' },
  run: async (context, { body: { agent_id, resource_id, principal_type: type } }, caller) => {
    const { database } = context
    const principal = await findPrincipalOf(database, type ? [type] : TYPES, agent_id)
    const resource = await findMcpResource(database, resource_id)
    if (!principal || !resource) {
      throw unprocessableBody([
        ...(principal ? [] : [NOBODY]),
        ...(resource ? [] : [{ field: 'resource_id', message: 'is not a resource of this service' }]),
      ])
    }
    return bind(context, caller, principal, resource)
  },
})

const NOBODY = { field: 'agent_id', message: 'is not a principal of this service' }

/** Takes its turn: a principal erased meanwhile must leave no binding for the next of its name. */
function bind(
  context: AdminContext,
  caller: AdminCaller,
  { principal_type, principal_id }: PrincipalRecord,
  { resource_id, name }: McpResource,
) {
  const { database } = context
  return serializedByPrincipal(context, { type: principal_type }, principal_id, async () => {
    const principal = await findPrincipal(database, principal_type, principal_id)
    if (!principal) throw unprocessableBody([NOBODY])
    const binding_id = `mcpb_${randomBytes(12).toString('hex')}`
    const created = { binding_id, principal_type, principal_id, resource_id }
    await commitChange(context, caller, {
      action: 'mcp_binding.created',
      detail: detailOf({ ...created, resource_name: name }, principal),
      statements: [insertMcpBinding(database, { ...created, ...changeAuthor(caller) })],
    })
    return { value: bindingView(await bindingOf(context, binding_id)), revision: REVISION }
  })
}

/** Bindings that are shown at once. */
const AT_ONCE = 1_000

export const listBindings = readOperation({
  name: 'listMcpBindings',
  summary: 'Lists the bindings of principals to MCP resources, oldest first.',
  takes: { query: filter },
  output: z.array(binding),
  run: async ({ database }, { query: { agent_id: principalId, resource_id: resourceId } }) => {
    const all = await listMcpBindings(database, { principalId, resourceId }, eventLoopTurn)
    return { value: await mapInBatches(all, AT_ONCE, bindingView) }
  },
})

export const getBinding = readOperation({
  name: 'getMcpBinding',
  summary: 'Shows the binding with that id.',
  takes: { params },
  output: binding,
  revised: true,
  reasons: ['not_found'],
  run: async (context, { params: { binding_id: bindingId } }) => ({
    value: bindingView(await bindingOf(context, bindingId)),
    revision: REVISION,
  }),
})

export const revokeBinding = emptyOperation({
  name: 'deleteMcpBinding',
  demands: 'admin.grant',
  action: 'mcp_binding.revoked',
  object: async (context, { params: { binding_id: bindingId } }) => {
    await bindingOf(context, bindingId)
    return { revision: REVISION }
  },
  summary: "Revokes a binding. This takes effect with the principal's very next call.",
  takes: { params },
  rehearses: async (context, { params: { binding_id: bindingId } }) => {
    const { principal_id: principal, resource_id: resource } = await bindingOf(context, bindingId)
    return [{ principal, resource, bound: false }]
  },
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { binding_id: bindingId } }, caller) => {
    const revoked = await bindingOf(context, bindingId)
    const { principal_type: type, principal_id: id } = revoked
    const of = { principal: { type, id }, resourceId: revoked.resource_id }
    const accounts = await endingOf(context, of, 'unbound', caller.at)
    const detail = detailOf(revoked, await findPrincipal(context.database, type, id))
    await commitChanges(context, caller, {
      statements: [deleteMcpBinding(context.database, revoked.binding_id), ...accounts.statements],
      notes: [{ action: 'mcp_binding.revoked', detail }, ...accounts.notes],
    })
  },
})

/** A binding is made and revoked, and never anything in between. */
const REVISION = 1

async function bindingOf({ database }: AdminContext, bindingId: string): Promise<NamedMcpBinding> {
  const [found] = await listMcpBindings(database, { bindingId })
  if (!found)
    throw notFound('There is no binding with this id. GET /v1/admin/mcp-resources/bindings lists them.')
  return found
}

/** Detail of a binding's row. `of`: its principal, whom the ledger may know by a name of its own. */
const detailOf = (
  binding: Omit<NamedMcpBinding, 'created_at' | 'created_by'>,
  of: PrincipalRecord | undefined,
) => ({
  subject: of?.principal_ref ?? null,
  subject_type: binding.principal_type,
  binding: binding.binding_id,
  binding_id: binding.binding_id,
  resource_id: binding.resource_id,
  resource: binding.resource_name,
})

const bindingView = ({ binding_id, principal_id, principal_type, ...rest }: NamedMcpBinding) => ({
  binding_id,
  agent_id: principal_id,
  // Nobody else is ever bound.
  principal_type: principal_type as (typeof TYPES)[number],
  ...rest,
  // It is made and revoked, and never anything in between.
  changed_by: rest.created_by,
})
