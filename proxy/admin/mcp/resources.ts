import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import type { FieldError } from '../../../db/capabilities.ts'
import { resourceAuthority } from '../../../db/mcp/authority.ts'
import { namesCollide, rejectNameCollision } from '../../../db/mcp/names.ts'
import {
  deleteMcpResource,
  insertMcpResource,
  listMcpResources,
  type McpResource,
  type McpResourceFields,
  NO_APPROVALS,
  updateMcpResource,
} from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { endingOf } from '../../mcp/accounts/ending.ts'
import { introductionOf } from '../../mcp/pinning/introduction.ts'
import { changeAuthor, commitChange, commitChanges } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { emptyOperation, operation, readOperation, requireCapability } from '../operation/operation.ts'
import { resourceParams } from '../operation/shapes.ts'
import {
  endpointFault,
  faultsBetween,
  fieldsOfNew,
  fieldsOfPatch,
  type McpResourceField,
  mcpResourcePatch,
  newMcpResource,
  pickFields,
  RESOURCE_FIELDS,
  reducesRequirements,
  secretFault,
} from './body.ts'
import { oauthFaults, withReaderRef } from './oauth.ts'
import {
  mcpResource,
  RESOURCE_CHANGE,
  readAndStoreUpstream,
  resourceAnswer,
  withLatestResource,
} from './one-resource.ts'
import { auditedFields, mcpResourceView, resourceDetail, resourceView } from './view.ts'

type Patch = z.output<typeof mcpResourcePatch>

/**
 * POST /v1/admin/mcp-resources: registers an MCP server, and reads it once, which pins its tools. One that
 * cannot be read is registered with `last_error` (docs/protocol.md#mcp-resources).
 */
export const createMcpResource = operation({
  name: 'createMcpResource',
  demands: 'admin.tools',
  action: 'mcp_resource.created',
  summary: 'Registers an MCP server, reads it once, and pins its tools.',
  takes: { body: newMcpResource },
  output: resourceDetail,
  status: 201,
  revised: true,
  fromStrangers: true,
  reasons: ['conflict', 'precondition_failed', 'audit_unavailable'],
  example: { name: 'files', endpoint_url: 'https://files.example/mcp' },
  run: async (context, { body }, caller) => {
    const { database, mcp } = context
    const { fields, faults } = await withReader(context, fieldsOfNew(body))
    refuse([
      ...faultsBetween(fields),
      ...faults,
      ...endpointFault(fields.endpoint_url, mcp.allowPrivateUpstreams),
      ...(await secretFault(fields.auth_secret_ref, mcp.secretsDir)),
      ...(await nameFaults(context, fields.name)),
    ])
    const id = `mcpr_${randomBytes(12).toString('hex')}`
    await commitChange(context, caller, {
      action: 'mcp_resource.created',
      detail: {
        subject: id,
        ...auditedFields(pickFields(fields, fields.oauth ? [...STATED_ALWAYS, 'oauth'] : STATED_ALWAYS)),
        ...resourceAuthority({ ...fields, resource_id: id }, 1),
      },
      statements: [
        insertMcpResource(database, { ...fields, resource_id: id, ...changeAuthor(caller) }),
        rejectNameCollision(database, fields.name),
      ],
    })
    await readAndStoreUpstream(context, caller, await mcpResource(context, id))
    return resourceAnswer(context, id)
  },
})

export const listAllMcpResources = readOperation({
  name: 'listMcpResources',
  summary: 'Lists the MCP servers by name, without the definitions of their tools.',
  takes: {},
  output: z.array(resourceView),
  run: async ({ database }) => {
    const value: Awaited<ReturnType<typeof mcpResourceView>>[] = []
    for (const resource of await listMcpResources(database)) {
      value.push(
        await mcpResourceView(database, resource, await listMcpTools(database, resource.resource_id)),
      )
      await eventLoopTurn()
    }
    return { value }
  },
})

export const getMcpResource = readOperation({
  name: 'getMcpResource',
  summary: 'Shows an MCP server, with the definitions of its tools.',
  takes: { params: resourceParams },
  output: resourceDetail,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found'],
  run: (context, input) => resourceAnswer(context, input.params.resource_id),
})

/**
 * PATCH /v1/admin/mcp-resources/{resource_id}: changes some fields, with one audit row in the same
 * transaction. A new endpoint or secret is read at once and judged by earlier approvals.
 */
export const patchMcpResource = operation({
  ...RESOURCE_CHANGE,
  name: 'updateMcpResource',
  action: 'mcp_resource.updated',
  alsoDemands: async (context, { params: { resource_id: id }, body }) => {
    const before = await mcpResource(context, id)
    return reducesRequirements(before, fieldsOfPatch(before, body)) ? [GRANT] : []
  },
  summary:
    'Changes some fields of an MCP server. A new endpoint or secret makes the gateway read it at once.',
  takes: { params: resourceParams, body: mcpResourcePatch },
  rehearses: async (context, { params: { resource_id: id }, body }) => {
    const { resource_id: resource } = await mcpResource(context, id)
    const demands = Object.fromEntries(DEMANDS.flatMap((name) => (name in body ? [[name, body[name]]] : [])))
    return Object.keys(demands).length > 0 ? [{ resource, ...demands }] : []
  },
  example: { enabled: false },
  run: async (context, { params: { resource_id: id }, body, ifMatch }, caller) => {
    const changed = await withLatestResource(context, { id, ifMatch }, (before) =>
      replace(context, caller, before, body),
    )
    // After the turn of this change: a server may take its time.
    if (changed.some((field) => READ_AGAIN.includes(field))) {
      await readAndStoreUpstream(context, caller, await mcpResource(context, id))
    }
    return resourceAnswer(context, id)
  },
})

/** Returns the fields that have changed; without any there is no row. */
async function replace(
  context: AdminContext,
  caller: AdminCaller,
  before: McpResource,
  patch: Patch,
): Promise<readonly McpResourceField[]> {
  const { database } = context
  const { resource_id: id } = before
  const merged = fieldsOfPatch(before, patch)
  const { fields, faults } = patch.oauth ? await withReader(context, merged) : { fields: merged, faults: [] }
  refuse([...(await patchFaults(context, before, fields, patch)), ...faults])
  const changed = changedOf(before, fields)
  if (changed.length === 0) return changed
  if (reducesRequirements(before, fields) && !caller.demanded?.includes(GRANT)) {
    // It was changed since the caller was asked.
    requireCapability(caller, GRANT)
    if (context.twoPerson.includes('grant')) throw new Refusal('precondition_failed')
  }
  // It stands in full next to this, and may be long.
  const told = changed.filter((field) => !STATED_WHOLE.includes(field))
  await commitChange(context, caller, {
    action: 'mcp_resource.updated',
    detail: {
      subject: id,
      ...resourceAuthority({ ...fields, resource_id: id }, before.revision + 1),
      fields: auditedFields(pickFields(fields, told)),
      previous: auditedFields(pickFields(before, changed)),
    },
    statements: [
      updateMcpResource(database, before, {
        ...fields,
        introduction: approvedWords(before),
        ...changeAuthor(caller),
      }),
      rejectNameCollision(database, fields.name),
    ],
  })
  return changed
}

const approvedWords = ({ server_facts: facts }: McpResource): JsonObject => ({ ...introductionOf(facts) })

const GRANT: AdminCapability = 'admin.grant'

/** The fields that say who may call what. */
const DEMANDS = [
  ...['required_capability', 'tool_capabilities', 'enabled'],
  ...['approval', 'tool_approvals', 'min_proof', 'tool_min_proof'],
] as const

/** The fields that a row of a registration has; its authority says those about approvals and proofs. */
const STATED_ALWAYS = RESOURCE_FIELDS.filter(
  (field) => !Object.hasOwn(NO_APPROVALS, field) && !['min_proof', 'tool_min_proof', 'oauth'].includes(field),
)

/** The fields whose new value a row says by its authority. */
const STATED_WHOLE: readonly McpResourceField[] = ['tool_capabilities', 'tool_approvals', 'tool_min_proof']

/** The fields that decide who answers, and as whom it is patch. */
const READ_AGAIN: readonly McpResourceField[] = ['endpoint_url', 'auth_type', 'auth_secret_ref', 'oauth']

const changedOf = (before: McpResourceFields, after: McpResourceFields): readonly McpResourceField[] =>
  RESOURCE_FIELDS.filter((field) => !isDeepStrictEqual(entriesOf(before[field]), entriesOf(after[field])))

// The order of names says nothing, and neither does a prototype.
const entriesOf = (value: McpResourceFields[McpResourceField]): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? new Map(Object.entries(value))
    : value

export const removeMcpResource = emptyOperation({
  name: 'deleteMcpResource',
  demands: 'admin.tools',
  action: 'mcp_resource.deleted',
  object: (context, { params: { resource_id: id } }) => mcpResource(context, id),
  summary: 'Deletes an MCP server with its tools and its bindings.',
  takes: { params: resourceParams },
  // To the calls of today it is as if it were switched off.
  rehearses: async (context, { params: { resource_id: id } }) => [
    { resource: (await mcpResource(context, id)).resource_id, enabled: false },
  ],
  conditional: true,
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { resource_id: id }, ifMatch }, caller) => {
    await withLatestResource(context, { id, ifMatch }, async (resource) => {
      const accounts = await endingOf(context, { resourceId: id }, 'resource_removed', caller.at)
      const detail = { subject: id, ...resourceAuthority(resource, resource.revision + 1) }
      await commitChanges(context, caller, {
        statements: [...deleteMcpResource(context.database, resource), ...accounts.statements],
        notes: [{ action: 'mcp_resource.deleted', detail }, ...accounts.notes],
      })
    })
  },
})

export const refreshMcpResource = operation({
  name: 'refreshMcpResource',
  demands: 'admin.tools',
  action: 'mcp_resource.updated',
  // Definitions found changed are put into quarantine.
  harmless: true,
  summary: 'Reads an MCP server again. The answer is 200 even if it cannot be read: see last_error.',
  takes: { params: resourceParams },
  output: resourceDetail,
  revised: true,
  fromStrangers: true,
  reasons: ['not_found', 'audit_unavailable'],
  run: async (context, { params: { resource_id: id } }, caller) => {
    await readAndStoreUpstream(context, caller, await mcpResource(context, id))
    return resourceAnswer(context, id)
  },
})

async function patchFaults(
  context: AdminContext,
  before: McpResource,
  after: McpResourceFields,
  patch: Patch,
): Promise<readonly FieldError[]> {
  return [
    ...faultsBetween(after),
    // One that was registered under other settings can still be changed, and disabled.
    ...(patch.endpoint_url === undefined
      ? []
      : endpointFault(after.endpoint_url, context.mcp.allowPrivateUpstreams)),
    ...(patch.auth_secret_ref === undefined
      ? []
      : await secretFault(after.auth_secret_ref, context.mcp.secretsDir)),
    ...(after.name === before.name ? [] : await nameFaults(context, after.name, before.resource_id)),
  ]
}

/** Resolves the reader of fields whose accounts are new, and looks for their faults. */
async function withReader(
  context: AdminContext,
  fields: McpResourceFields,
): Promise<{ readonly fields: McpResourceFields; readonly faults: readonly FieldError[] }> {
  const { oauth } = fields
  if (oauth === null) return { fields, faults: [] }
  const found = await withReaderRef(context, oauth)
  const { client_secret_ref: secret = null } = oauth
  const faults = [
    ...oauthFaults(oauth, context.mcp),
    ...(await secretFault(secret, context.mcp.secretsDir, 'oauth.client_secret_ref')),
  ]
  return 'message' in found
    ? { fields, faults: [...faults, found] }
    : { fields: { ...fields, oauth: found }, faults }
}

async function nameFaults(
  { database }: AdminContext,
  name: string,
  own?: string,
): Promise<readonly FieldError[]> {
  const others = (await listMcpResources(database)).filter(({ resource_id: id }) => id !== own)
  const other = others.find((resource) => namesCollide(resource.name, name))
  if (!other) return []
  const message = `would make tool names ambiguous together with the resource ${other.name}`
  return [{ field: 'name', message }]
}

function refuse(faults: readonly FieldError[]): void {
  if (faults.length > 0) throw unprocessableBody(faults)
}
