import { alignColumns, jsonLines } from '../print.ts'
import type { BindingView, ResourceDetailView, ResourceView, ToolDetailView, ToolView } from './resources.ts'
import { mcpCommand } from './resources.ts'

export function resourceTable(
  all: readonly ResourceView[],
  bindings: readonly BindingView[],
): readonly string[] {
  if (all.length === 0) return [`no MCP server is registered: ${mcpCommand('add NAME URL')}`]
  const bound = Map.groupBy(bindings, (binding) => binding.resource_id)
  const rows = all.map((one) => [
    one.name,
    stateOf(one),
    demandOf(one),
    String(bound.get(one.resource_id)?.length ?? 0),
    shownUrl(one),
    toolTotals(one.tools),
  ])
  return alignColumns([['NAME', 'STATE', 'DEMANDS', 'BOUND', 'ENDPOINT', 'TOOLS'], ...rows])
}

export function resourceLines(
  resource: ResourceDetailView,
  bindings: readonly BindingView[],
): readonly string[] {
  const { name, description, last_error: error, tools } = resource
  const bound = bindings.map(({ agent_id: id }) => id).join(', ')
  const facts: readonly (readonly [string, string | null])[] = [
    ['about', description],
    ['state', stateOf(resource)],
    ['error', error],
    ['read', readOf(resource)],
    ['credential', credentialOf(resource)],
    ['accounts', accountsOf(resource)],
    ['hosts', resource.allowed_domains.join(', ') || null],
    ['demands', demandOf(resource)],
    ['approved by', resource.approval],
    ['bound', bound || 'nobody'],
    ['tools', toolTotals(tools)],
  ]
  const shown = facts.flatMap(([title, text]) => (text === null ? [] : `  ${title.padEnd(12)}${text}`))
  const lines = [
    ...pendingServerLines(resource),
    ...toolLines(tools),
    ...skippedLines(resource),
    ...unknownLines(resource),
  ]
  return [`${name}  ${shownUrl(resource)}`, ...shown, ...lines]
}

export function skippedLines({
  skipped_count: count,
  skipped_tools: tools,
}: ResourceView): readonly string[] {
  const lines = tools.map(({ name, reason }) => `skipped ${name ?? 'one without a name'}: ${reason}`)
  return count === tools.length ? lines : [...lines, `and ${count - tools.length} more were skipped`]
}

/** Tells each name in `tool_capabilities` that no tool has: most likely the operator meant another one. */
export const unknownLines = ({ unknown_tools: unknown }: ResourceDetailView): readonly string[] =>
  unknown.map((tool) => `tool_capabilities names ${tool}, which the server does not have`)

/** Writes a tool with its definitions whole; below them how they differ. */
export const toolDetailLines = (tool: ToolDetailView): readonly string[] => [
  ...(tool.definition === null ? [] : ['approved:', ...jsonLines(tool.definition)]),
  ...pendingLines(tool),
]

export const pendingLines = (tool: ToolDetailView): readonly string[] => [
  ...(tool.pending_definition ? ['is waiting for approval:', ...jsonLines(tool.pending_definition)] : []),
  ...toolLines([tool]),
]

/** Writes the server's waiting description, whole, and its differences. Nothing if nothing waits. */
export function pendingServerLines(resource: ResourceDetailView): readonly string[] {
  const { pending_server: pending, pending_server_digest: digest } = resource
  if (!pending || digest === null) return []
  const { server_changes: changes, server_flags: flags } = resource
  const says = ['says about itself, which is waiting for approval:', ...jsonLines(pending)]
  return [...says, ...pendingDetailLines({ pending_digest: digest, changes: changes ?? [], flags })]
}

/** Writes each tool with its state, demand, waiting digest, differences and flags. */
export function toolLines(tools: readonly ToolView[]): readonly string[] {
  const heads = alignColumns(
    tools.map((tool) => [`    ${tool.state}`, tool.name, demandOf(tool), approverText(tool)]),
  )
  return tools.flatMap((tool, index) => [heads[index] ?? '', ...pendingDetailLines(tool)])
}

function pendingDetailLines({
  pending_digest: digest,
  changes = [],
  flags,
}: Pick<ToolView, 'pending_digest' | 'changes' | 'flags'>): readonly string[] {
  return [
    ...(digest === null ? [] : [`waits as ${digest}`]),
    ...changes,
    ...flags.map((flag) => `look closely: ${flag}`),
  ].map((line) => `      ${line}`)
}

const approverText = ({ approval }: Pick<ToolView, 'approval'>): string =>
  approval === null ? '' : `each call approved by ${approval === 'person' ? 'a person' : 'an operator'}`

export const demandOf = ({ required_capability: demanded }: Pick<ToolView, 'required_capability'>): string =>
  demanded ?? 'a binding only'

export function toolTotals(tools: readonly ToolView[]): string {
  const states = Map.groupBy(tools, ({ state }) => state)
  return [...states].map(([state, { length }]) => `${length} ${state}`).join(', ') || 'no tools'
}

function stateOf({ enabled, last_error: error }: ResourceView): string {
  if (!enabled) return 'disabled'
  return error === null ? 'ok' : 'unreadable'
}

const readOf = ({ last_read_at: at, protocol_version: version }: ResourceView): string =>
  at === null ? 'never' : `${at}${version === null ? '' : `, speaks ${version}`}`

const credentialOf = ({ auth_type: type, auth_secret_ref: ref }: ResourceView): string =>
  ref === null ? type : `${type}, from ${ref}`

const accountsOf = ({ oauth }: ResourceView): string | null =>
  oauth &&
  [
    `at ${oauth.issuer ?? 'the issuer that it names'}`,
    `scopes: ${oauth.scopes.join(' ') || 'the default'}`,
    `read by ${oauth.reader ?? 'nobody: its reader was erased'}`,
  ].join('; ')

/** Returns the URL without its query, which may be a key: others look at a terminal too. */
function shownUrl({ endpoint_url: endpoint }: ResourceView): string {
  const { origin, pathname, search } = new URL(endpoint)
  return `${origin}${pathname}${search === '' ? '' : '?…'}`
}
