import type { z } from 'zod'
import { nearestName } from '../../plugins/operator-files/nearest-name.ts'
import type { resourceDetail, resourceView } from '../../proxy/admin/mcp/view.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { type AdminSubcommand, type PrintLines, subcommandOf } from '../admin/subcommand.ts'
import { commandOf } from '../command.ts'

/** Returns the command that does this with MCP servers, e.g. `make mcp ARGS="show files"`. */
export const mcpCommand = (words: string): string => commandOf(`mcp ARGS="${words}"`, `mcp ${words}`)

/** Makes the subcommand `name NAME`, which does one thing to one server. */
export function onServer(
  name: string,
  about: string,
  work: (call: AdminCall, say: PrintLines, resource: ResourceView) => Promise<void>,
): AdminSubcommand {
  return subcommandOf({
    takes: 'NAME',
    about,
    misuse: `name the server: ${mcpCommand(`${name} NAME`)}`,
    run: async ({ call, say, args: [server] }) => work(call, say, await resourceNamed(call, server)),
  })
}

// As the admin API says them (docs/protocol.md#mcp-resources).
export type ResourceView = z.output<typeof resourceView>
export type ResourceDetailView = z.output<typeof resourceDetail>
export type ToolView = ResourceView['tools'][number]
export type ToolDetailView = ResourceDetailView['tools'][number]

export interface BindingView {
  readonly binding_id: string
  /** The id of an agent, a user or a workload. */
  readonly agent_id: string
  readonly resource_id: string
}

export const RESOURCES_PATH = '/v1/admin/mcp-resources'
export const BINDINGS_PATH = `${RESOURCES_PATH}/bindings`

export const resourcePath = (resourceId: string): string =>
  `${RESOURCES_PATH}/${encodeURIComponent(resourceId)}`

export async function fetchResources(call: AdminCall): Promise<readonly ResourceView[]> {
  return listOf<ResourceView>(expectStatus(await call('GET', RESOURCES_PATH), 200))
}

/** Finds the MCP server of that name. Throws one sentence if there is none. */
export async function resourceNamed(call: AdminCall, name: string): Promise<ResourceView> {
  const all = await fetchResources(call)
  const found = all.find((one) => one.name === name)
  if (found) return found
  const near = nearestName(
    name,
    all.map((one) => one.name),
  )
  const hint = near === undefined ? 'none is registered' : `did you mean ${near}?`
  throw new Error(`there is no MCP server with the name ${JSON.stringify(name)}: ${hint}`)
}

/** Finds the server of that name, with the definitions of its tools. Throws one sentence if there is none. */
export const resourceDetailNamed = async (call: AdminCall, name: string): Promise<ResourceDetailView> =>
  (await readResourceNamed(call, name)).resource

export async function readResourceNamed(
  call: AdminCall,
  name: string,
): Promise<{ readonly resource: ResourceDetailView; readonly etag: string | undefined }> {
  const { resource_id: id } = await resourceNamed(call, name)
  const answer = await call('GET', resourcePath(id))
  return { resource: expectStatus<ResourceDetailView>(answer, 200), etag: answer.etag }
}

/** Finds the tool of that name. Throws one sentence if the server has none. */
export function toolNamed({ name, tools }: ResourceDetailView, tool: string): ToolDetailView {
  const found = tools.find((one) => one.name === tool)
  if (!found) throw new Error(`${name} has no tool with the name ${JSON.stringify(tool)}`)
  return found
}

export async function fetchBindings(
  call: AdminCall,
  resource?: Pick<ResourceView, 'resource_id'>,
): Promise<readonly BindingView[]> {
  const query = resource ? `?${new URLSearchParams({ resource_id: resource.resource_id }).toString()}` : ''
  return listOf<BindingView>(expectStatus(await call('GET', BINDINGS_PATH + query), 200))
}

function listOf<T>(body: unknown): readonly T[] {
  if (!Array.isArray(body)) throw new Error('the gateway answered with something other than a list')
  // The admin API's own shape (docs/protocol.md#mcp-resources), of the version that runs.
  return body as readonly T[]
}
