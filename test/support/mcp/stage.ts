import type { Test } from 'tap'
import { META_KEYS, MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import {
  type Answered,
  type Identity,
  type Json,
  type TestGateway,
  type TestOptions,
  testGateway,
} from '../gateway.ts'
import { type Act, legacy, type RawMcp, rawMcp, result, sendJson } from './raw-upstream.ts'

/** A tool as a test's MCP server lists it. */
export const tool = (name: string, more: Json = {}): Json => ({
  name,
  description: `Does ${name}.`,
  inputSchema: { type: 'object' },
  ...more,
})

/** Answers every call with its name and arguments. */
export const echo: Act = (res, told) => {
  const params = told.message.params as Json
  const text = JSON.stringify({ name: params?.name, arguments: params?.arguments })
  sendJson(res, result(told, { content: [{ type: 'text', text }] }))
}

/** A legacy MCP server with these tools, whose calls `act` answers. */
export const toolServer = (t: Test, tools: readonly Json[], act: Act = echo): Promise<RawMcp> =>
  rawMcp(t, legacyWith(tools, act))

export const legacyWith = (tools: readonly Json[], act: Act = echo): Act =>
  legacy({
    act: (res, told) => (told.rpc === 'tools/list' ? sendJson(res, result(told, { tools })) : act(res, told)),
  })

/** The tools/call requests that reached a server. */
export const called = (server: RawMcp): readonly Json[] =>
  server.of('tools/call').map(({ message }) => message.params)

export interface RpcOptions {
  readonly params?: Json
  /** Behind `/v1/mcp`. */
  readonly at?: string
  readonly headers?: Record<string, string>
  readonly modern?: boolean
  readonly id?: string | number
}

/** A gateway with MCP servers of a test behind it. */
export interface Stage extends TestGateway {
  /** Registers an MCP server; gives the resource. */
  readonly register: (name: string, server: { readonly url: string }, more?: Json) => Promise<Json>
  readonly bind: (who: Identity, resource: Json) => Promise<Json>
  readonly grant: (who: Identity, capabilities: readonly string[]) => Promise<Answered>
  readonly resource: (of: Json) => Promise<Json>
  readonly refresh: (of: Json) => Promise<Json>
  /** One JSON-RPC request. */
  readonly rpc: (who: Identity | null, method: string, options?: RpcOptions) => Promise<Answered>
  readonly callTool: (who: Identity, name: string, args?: Json, options?: RpcOptions) => Promise<Answered>
  /** The names that tools/list shows. */
  readonly listed: (who: Identity, options?: RpcOptions) => Promise<readonly string[]>
}

export async function mcpStage(t: Test, options: TestOptions = {}): Promise<Stage> {
  const gateway = await testGateway(t, {
    ...options,
    settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true', ...options.settings },
  })
  const { admin } = gateway
  const made = async (path: string, body: Json): Promise<Json> => {
    const { status, json, text } = await admin('POST', path, body)
    if (status !== 201) throw new Error(`POST ${path}: ${status} ${text}`)
    return json
  }
  const rpc: Stage['rpc'] = (who, method, { at = '', ...rest } = {}) =>
    gateway.call(who, 'POST', `/v1/mcp${at}`, request(method, rest))
  return {
    ...gateway,
    register: (name, { url }, more = {}) =>
      made('/v1/admin/mcp-resources', { name, endpoint_url: url, ...more }),
    bind: ({ id }, { resource_id }) =>
      made('/v1/admin/mcp-resources/bindings', { agent_id: id, resource_id }),
    grant: ({ id }, capabilities) => admin('PATCH', `/v1/admin/agents/${id}/capabilities`, { capabilities }),
    resource: async ({ resource_id: id }) => (await admin('GET', `/v1/admin/mcp-resources/${id}`)).json,
    refresh: async ({ resource_id: id }) =>
      (await admin('POST', `/v1/admin/mcp-resources/${id}/refresh`)).json,
    rpc,
    callTool: (who, name, args = {}, more = {}) =>
      rpc(who, 'tools/call', { ...more, params: { name, arguments: args, ...more.params } }),
    listed: async (who, more = {}) => {
      const { json } = await rpc(who, 'tools/list', more)
      return json.result.tools.map(({ name }: Json) => name)
    },
  }
}

/** A request of either era as a client sends it. */
export function request(method: string, { params = {}, headers = {}, modern, id = 1 }: RpcOptions) {
  const accept = { accept: 'application/json, text/event-stream' }
  if (!modern) return { headers: { ...accept, ...headers }, body: { jsonrpc: '2.0', id, method, params } }
  const named: unknown = method === 'resources/read' ? params.uri : params.name
  const standard = { 'mcp-protocol-version': MODERN_VERSION, 'mcp-method': method }
  const name = typeof named === 'string' && method !== 'completion/complete' ? { 'mcp-name': named } : {}
  const _meta = { [META_KEYS.version]: MODERN_VERSION, [META_KEYS.capabilities]: {}, ...params._meta }
  return {
    headers: { ...accept, ...standard, ...name, ...headers },
    body: { jsonrpc: '2.0', id, method, params: { ...params, _meta } },
  }
}

/**
 * A server `files` with the tools `read`, which demands `files.use`, and `write`, which demands
 * `files.write`; an agent, not bound to it.
 */
export async function filesStage(t: Test, held: readonly string[], act?: Act) {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('read'), tool('write')], act)
  const files = await stage.register('files', server, {
    required_capability: 'files.use',
    tool_capabilities: { write: 'files.write' },
  })
  return { stage, server, files, bot: await stage.enroll('bot', held) }
}
