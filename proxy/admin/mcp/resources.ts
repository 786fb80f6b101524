import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import type { FieldError } from '../../../db/capabilities.ts'
import { nameIsClear, namesCollide } from '../../../db/mcp/names.ts'
import {
  deleteMcpResource,
  findMcpResource,
  insertMcpResource,
  listMcpResources,
  type McpResource,
  type McpResourceFields,
  updateMcpResource,
} from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { Refusal, unprocessable } from '../../../plugins/refusal.ts'
import { json, type Reply } from '../../http/reply.ts'
import { type AdminContext, change } from '../change.ts'
import { checkIfMatch, etagOf } from '../etag.ts'
import { parse } from '../parse.ts'
import type { AdminBodyRequest, AdminRequest } from '../principals/principals.ts'
import {
  endpointFault,
  faultsBetween,
  fieldsOfNew,
  fieldsOfPatch,
  mcpResourcePatch,
  newMcpResource,
} from './body.ts'
import { readUpstream } from './read.ts'
import { auditedFields, mcpResourceDetail, mcpResourceView } from './view.ts'
import { visibleJson } from './visible-json.ts'

/** How often a change is tried again when somebody else's came in between. */
const ATTEMPTS = 5

type Patch = z.output<typeof mcpResourcePatch>

/**
 * POST /v1/admin/mcp-resources: registers an MCP server, and reads it once, which pins its tools. One that cannot be read
 * is registered all the same: 201, with `last_error` and without tools (WIRE.md §2).
 */
export const createMcpResource =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const fields = fieldsOfNew(parse(newMcpResource, facts.json))
    const { database, mcp } = context
    refuse([
      ...faultsBetween(fields),
      ...endpointFault(fields.endpoint_url, mcp.allowPrivateUpstreams),
      ...(await nameFaults(context, fields.name)),
    ])
    const id = `mcpr_${randomBytes(12).toString('hex')}`
    await change(context, facts, {
      action: 'mcp_resource.created',
      detail: { subject: id, ...auditedFields(fields) },
      statements: [
        insertMcpResource(database, { ...fields, resource_id: id, at: facts.at }),
        nameIsClear(database, fields.name),
      ],
    })
    await readUpstream(context, facts, await mcpResource(context, id))
    return answerMcpResource(context, id, 201)
  }

/** GET /v1/admin/mcp-resources: a bare array, by name, without the definitions of tools. */
export const listAllMcpResources =
  ({ database }: AdminContext) =>
  async (): Promise<Reply> => {
    const shown: Record<string, unknown>[] = []
    for (const resource of await listMcpResources(database)) {
      shown.push(mcpResourceView(resource, await listMcpTools(database, resource.resource_id)))
    }
    return json(200, shown)
  }

/** GET /v1/admin/mcp-resources/{resource_id} */
export const getMcpResource =
  (context: AdminContext) =>
  ({ params }: AdminRequest): Promise<Reply> =>
    answerMcpResource(context, params.resource_id)

/**
 * PATCH /v1/admin/mcp-resources/{resource_id}: changes some of the fields, with one audit row in the same transaction. A
 * new endpoint or another secret is read at once: what it lists is judged by what was approved before. If-Match is honoured.
 */
export const patchMcpResource =
  (context: AdminContext) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const asked = parse(mcpResourcePatch, facts.json)
    for (let attempt = 1; ; attempt += 1) {
      const before = await mcpResource(context, facts.params.resource_id)
      checkIfMatch(facts.headers['if-match'], before)
      try {
        await replace(context, facts, before, asked)
        return answerMcpResource(context, before.resource_id)
      } catch (error) {
        // Somebody else's change came between the read and the write: read again, and judge If-Match again.
        const again = error instanceof Refusal && error.reason === 'precondition_failed'
        if (!again || attempt === ATTEMPTS) throw error
      }
    }
  }

async function replace(
  context: AdminContext,
  facts: AdminBodyRequest,
  before: McpResource,
  asked: Patch,
): Promise<void> {
  const { database } = context
  const { resource_id: id, name } = before
  const fields = fieldsOfPatch(before, asked)
  refuse(await patchFaults(context, before, fields, asked))
  const changed = changedOf(before, fields)
  if (changed.length === 0) return
  await change(context, facts, {
    action: 'mcp_resource.updated',
    detail: {
      subject: id,
      name,
      fields: auditedFields(only(fields, changed)),
      previous: auditedFields(only(before, changed)),
    },
    statements: [
      updateMcpResource(database, before, { ...fields, at: facts.at }),
      nameIsClear(database, fields.name),
    ],
  })
  if (changed.some((field) => READ_AGAIN.includes(field))) {
    await readUpstream(context, facts, await mcpResource(context, id))
  }
}

type Field = keyof McpResourceFields

/** What decides who answers, and as whom it is asked. */
const READ_AGAIN: readonly Field[] = ['endpoint_url', 'auth_type', 'auth_secret_ref']

const FIELDS: readonly Field[] = [
  'name',
  'description',
  'endpoint_url',
  'auth_type',
  'auth_secret_ref',
  'required_capability',
  'allowed_domains',
  'enabled',
  'tool_capabilities',
]

const changedOf = (before: McpResourceFields, after: McpResourceFields): readonly Field[] =>
  FIELDS.filter((field) => !isDeepStrictEqual(entriesOf(before[field]), entriesOf(after[field])))

// The order of names says nothing, and neither does a prototype.
const entriesOf = (value: McpResourceFields[Field]): unknown =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? new Map(Object.entries(value))
    : value

const only = (fields: McpResourceFields, names: readonly Field[]): Partial<McpResourceFields> =>
  Object.fromEntries(names.map((name) => [name, fields[name]]))

/** DELETE /v1/admin/mcp-resources/{resource_id}: with its tools and its bindings. If-Match is honoured. */
export const removeMcpResource =
  (context: AdminContext) =>
  async (facts: AdminRequest): Promise<Reply> => {
    const resource = await mcpResource(context, facts.params.resource_id)
    const revision = checkIfMatch(facts.headers['if-match'], resource)
    const { resource_id: id, name } = resource
    await change(context, facts, {
      action: 'mcp_resource.deleted',
      detail: { subject: id, name },
      statements: deleteMcpResource(context.database, { resource_id: id, revision }),
    })
    return { status: 204 }
  }

/** POST …/{resource_id}/refresh: reads the upstream again. 200 too where it cannot be read: `last_error` says so. */
export const refreshMcpResource =
  (context: AdminContext) =>
  async (facts: AdminRequest): Promise<Reply> => {
    const resource = await mcpResource(context, facts.params.resource_id)
    await readUpstream(context, facts, resource)
    return answerMcpResource(context, resource.resource_id)
  }

/** The resource of that id, or `not_found`. */
export async function mcpResource({ database }: AdminContext, id: string | undefined): Promise<McpResource> {
  const found = id === undefined ? undefined : await findMcpResource(database, id)
  if (!found) throw new Refusal('not_found', { message: 'There is no MCP resource of this id.' })
  return found
}

/** The resource of that id as it is now, with its tools and their definitions, in which nothing hides. */
export async function answerMcpResource(
  context: AdminContext,
  id: string | undefined,
  status = 200,
): Promise<Reply> {
  const resource = await mcpResource(context, id)
  const tools = await listMcpTools(context.database, resource.resource_id)
  return {
    status,
    headers: { 'content-type': 'application/json', etag: etagOf(resource) },
    body: visibleJson(JSON.stringify(mcpResourceDetail(resource, tools))),
  }
}

async function patchFaults(
  context: AdminContext,
  before: McpResource,
  after: McpResourceFields,
  asked: Patch,
): Promise<readonly FieldError[]> {
  return [
    ...faultsBetween(after),
    // One that was registered when private hosts were allowed can still be changed, and disabled.
    ...(asked.endpoint_url === undefined
      ? []
      : endpointFault(after.endpoint_url, context.mcp.allowPrivateUpstreams)),
    ...(after.name === before.name ? [] : await nameFaults(context, after.name, before.resource_id)),
  ]
}

async function nameFaults(
  { database }: AdminContext,
  name: string,
  own?: string,
): Promise<readonly FieldError[]> {
  const others = (await listMcpResources(database)).filter(({ resource_id: id }) => id !== own)
  const other = others.find((resource) => namesCollide(resource.name, name))
  if (!other) return []
  const message = `would make names of tools ambiguous beside the resource ${other.name}`
  return [{ field: 'name', message }]
}

function refuse(faults: readonly FieldError[]): void {
  if (faults.length > 0) throw unprocessable(faults)
}
