import { createHash } from 'node:crypto'
import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import { approverOf, capabilityOf } from '../../../db/ledger/authority/rule.ts'
import type { McpResource, McpResourceFields } from '../../../db/mcp/resources.ts'
import { oauthDigest } from '../../../db/mcp/said-addresses.ts'
import type { McpTool } from '../../../db/mcp/tools.ts'
import type { JsonObject, JsonValue } from '../../../db/support/json.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { skippedIn } from '../../mcp/pinning/inspect.ts'
import {
  introductionChanges,
  introductionDigest,
  introductionFlags,
  introductionOf,
  pendingIntroduction,
} from '../../mcp/pinning/introduction.ts'
import { pendingChanges } from '../../mcp/pinning/tool-changes.ts'
import { approverKind, author, capabilityToken, instant, minProof, sha256 } from '../operation/shapes.ts'
import { authType } from './body.ts'
import { oauthView, oauthViewOf } from './oauth.ts'

const tool = {
  name: z.string(),
  exposed_as: z.string().meta({ examples: ['files.read_file'] }),
  required_capability: capabilityToken.nullable().meta({ description: 'Null: only a binding is required.' }),
  approval: approverKind.meta({ description: 'Who must approve its calls. Null: nobody.' }),
  state: z.enum(['approved', 'quarantined', 'gone']),
  digest: sha256.nullable().meta({ description: 'Null if it was never approved.' }),
  pending_digest: sha256.nullable(),
  flags: z.array(z.string()).meta({ description: 'Why an operator should look closely.' }),
  pinned_at: instant.nullable(),
  changed_at: instant.nullable(),
  changes: z.array(z.string()).exactOptional().meta({ description: 'What differs, if a definition waits.' }),
}

const definition = z.record(z.string(), z.unknown())

const resource = {
  resource_id: z.string(),
  name: z.string(),
  description: z.string().nullable(),
  endpoint_url: z.string(),
  auth_type: authType,
  auth_secret_ref: z.string().nullable(),
  oauth: oauthView.nullable().meta({ description: 'The authorization server of its accounts, or null.' }),
  required_capability: capabilityToken.nullable(),
  allowed_domains: z.array(z.string()),
  enabled: z.boolean(),
  tool_capabilities: z.record(z.string(), capabilityToken),
  approval: approverKind,
  tool_approvals: z.record(z.string(), approverKind),
  approval_ttl_s: z.int(),
  approval_wait_s: z.int(),
  min_proof: minProof.meta({ description: 'The least proof that it takes of a caller.' }),
  tool_min_proof: z.record(z.string(), minProof),
  era: z.enum(['modern', 'legacy']).nullable(),
  protocol_version: z.string().nullable(),
  last_read_at: instant.nullable(),
  last_error: z.string().nullable(),
  skipped_count: z.int().meta({
    description: 'How many tools of its list cannot be used. They are neither listed nor called.',
  }),
  skipped_tools: z
    .array(z.strictObject({ name: z.string().nullable(), reason: z.string() }))
    .meta({ description: 'The first of these, with the reason. The name is null if there is none.' }),
  created_at: instant,
  updated_at: instant,
  pending_server_digest: sha256.nullable().meta({
    description:
      'The digest of what the server says about itself now, if that is waiting for approval; else null.',
  }),
  created_by: author,
  changed_by: author,
}

const introduction = { serverInfo: z.unknown().optional(), instructions: z.unknown().optional() }

export const resourceView = z
  .strictObject({ ...resource, tools: z.array(z.strictObject(tool)) })
  .meta({ id: 'McpResource' })

export const resourceDetail = z
  .strictObject({
    ...resource,
    server: z
      .strictObject({ capabilities: z.unknown().optional(), ...introduction })
      .nullable()
      .meta({ description: 'What the server says about itself, as approved; null if it was never read.' }),
    server_digest: sha256.nullable(),
    server_flags: z
      .array(z.string())
      .meta({ description: 'Why an operator should look closely; what is waiting for approval first.' }),
    pending_server: z.strictObject(introduction).exactOptional(),
    server_changes: z
      .array(z.string())
      .exactOptional()
      .meta({ description: 'What differs, if something is waiting for approval.' }),
    unknown_tools: z.array(z.string()),
    tools: z.array(
      z.strictObject({
        ...tool,
        definition: definition.nullable(),
        pending_definition: definition.nullable().exactOptional(),
      }),
    ),
  })
  .meta({ id: 'McpResourceDetail' })

/** A resource as operators see it (docs/protocol.md#mcp-resources). The revision is the ETag, not a field. */
export async function mcpResourceView(database: Database, resource: McpResource, tools: readonly McpTool[]) {
  return { ...(await fieldsOf(database, resource)), tools: await toolViews(resource, tools, () => ({})) }
}

/** The tools that take so long are shown at once. ms. */
const SLICE_MS = 3

/** Shows tools as all views do, each with `more` of it. */
async function toolViews<More>(
  resource: McpResource,
  tools: readonly McpTool[],
  more: (tool: McpTool) => More,
) {
  const views = []
  let since = performance.now()
  for (const tool of tools) {
    const changes = isWaiting(tool) ? await pendingChanges(tool) : null
    views.push({ ...toolView(resource, tool), ...(changes && { changes }), ...more(tool) })
    if (performance.now() - since < SLICE_MS) continue
    // Each may have two definitions of 256 KiB.
    await eventLoopTurn()
    since = performance.now()
  }
  return views
}

/** The fields of a resource, and what waits of the server's own words. The revision is the ETag. */
async function fieldsOf(database: Database, { revision: _, server_facts: facts, ...fields }: McpResource) {
  const { count, tools } = skippedIn(facts)
  const pending = pendingIntroduction(facts)
  return {
    ...{ skipped_count: count, skipped_tools: tools },
    ...fields,
    oauth: await oauthViewOf(database, fields.oauth),
    pending_server_digest: pending && introductionDigest(pending),
  }
}

/**
 * The same with all that an operator must read before an approval: the server's words about itself, each
 * definition whole, and names in `tool_capabilities` that no tool has ever had.
 */
export async function mcpResourceDetail(
  database: Database,
  resource: McpResource,
  tools: readonly McpTool[],
) {
  return {
    ...(await fieldsOf(database, resource)),
    server: serverOf(resource),
    ...introductionView(resource),
    unknown_tools: unknownTools(resource, tools),
    tools: await toolViews(resource, tools, definitionsOf),
  }
}

function introductionView({ server_facts: facts }: McpResource) {
  const [approved, pending] = [introductionOf(facts), pendingIntroduction(facts)]
  return {
    server_digest: facts && introductionDigest(approved),
    server_flags: introductionFlags(pending ?? approved),
    ...(pending && { pending_server: pending, server_changes: introductionChanges(approved, pending) }),
  }
}

/** Null if it was never read. JSON leaves out what the server did not say. */
function serverOf({ server_facts: facts }: McpResource) {
  if (facts === null) return null
  const { capabilities, serverInfo, instructions } = facts
  return { capabilities, serverInfo, instructions }
}

/** None for a server that was never read: its tools are unknown. */
function unknownTools(
  { tool_capabilities: own, last_read_at: readAt }: McpResource,
  tools: readonly McpTool[],
): readonly string[] {
  if (readAt === null) return []
  const known = new Set(tools.map(({ name }) => name))
  return Object.keys(own).filter((name) => !known.has(name))
}

/** Tells whether a definition waits: one of a quarantined tool, or of one that is listed in part. */
const isWaiting = ({ state, pending_digest: digest }: McpTool): boolean => state !== 'gone' && digest !== null

function definitionsOf(tool: McpTool) {
  const { definition, pending_definition: pending } = tool
  return {
    definition: definitionOf(definition),
    ...(isWaiting(tool) && { pending_definition: definitionOf(pending) }),
  }
}

function toolView(resource: McpResource, tool: McpTool) {
  const { name, state, digest, pending_digest, flags, pinned_at, changed_at } = tool
  return {
    name,
    exposed_as: `${resource.name}.${name}`,
    required_capability: capabilityOf(resource, name),
    approval: approverOf(resource, name),
    state,
    digest,
    pending_digest,
    flags,
    pinned_at,
    changed_at,
  }
}

// Proven by the reader of tools: only objects were ever stored.
const definitionOf = (text: string | null): Record<string, unknown> | null =>
  text === null ? null : (JSON.parse(text) as Record<string, unknown>)

/**
 * The fields as an audit row holds them: a digest of the URL's query, which may be a key, and names of tools
 * as values.
 */
export function auditedFields(fields: Partial<McpResourceFields>): JsonObject {
  const {
    endpoint_url: endpoint,
    tool_capabilities: own,
    tool_approvals: approvals,
    tool_min_proof: proofs,
    oauth,
    ...rest
  } = fields
  const audited: Record<string, JsonValue> = { ...rest }
  if (own !== undefined) audited.tool_capabilities = Object.entries(own)
  if (approvals !== undefined) audited.tool_approvals = Object.entries(approvals)
  if (proofs !== undefined) audited.tool_min_proof = Object.entries(proofs)
  if (oauth !== undefined) {
    audited.oauth = oauth && { ...oauth, scopes: [...oauth.scopes] }
    audited.oauth_sha256 = oauthDigest(oauth)
  }
  if (endpoint !== undefined) {
    const { origin, pathname } = new URL(endpoint)
    audited.endpoint_url = origin + pathname
    audited.endpoint_url_sha256 = createHash('sha256').update(endpoint).digest('hex')
  }
  return audited
}
