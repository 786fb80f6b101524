import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { calculateJwkThumbprint } from 'jose'
import type { Test } from 'tap'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { createFetch, type Fetch } from '../../../scripts/client/create-fetch.ts'
import { readIdentity } from '../../../scripts/client/identity/identity.ts'
import { clientSession } from '../../../scripts/client/signing/session.ts'
import type { Json } from '../gateway.ts'
import { type Mode, sdkV1, sdkV2 } from '../mcp/clients.ts'
import { mcpStage, type Stage } from '../mcp/stage.ts'
import { identityDirectory } from './identity.ts'

/** A gateway with MCP servers behind it, and one agent of it, `acme::bot`. */
export interface McpThrough {
  readonly stage: Stage
  /** The agent's identity directory. */
  readonly directory: string
  /** The helper's fetch. */
  readonly fetch: Fetch
  /**
   * Registers an MCP server and, unless told otherwise, binds the agent to it. Its capability is
   * `<name>.use`.
   */
  readonly behind: (
    name: string,
    server: { readonly url: string },
    more?: { readonly tool_capabilities?: Json; readonly bound?: boolean },
  ) => Promise<void>
  /** Takes the agent's binding to it away. */
  readonly unbind: (name: string) => Promise<void>
  /**
   * Stops the gateway and gives its decisions on the agent's MCP messages, oldest first, as `tool status`,
   * the action in place of a tool where none is meant. The test has failed where one of them was not bound to
   * the agent's own key, where proofs are required, or not in that version of the protocol.
   */
  readonly decisions: (version: string) => Promise<readonly string[]>
}

interface Options {
  /** Whether no MCP message is taken without a DPoP proof. Default true; else a certificate alone will do. */
  readonly proven?: boolean
  /** Operator files beside that. */
  readonly files?: Readonly<Record<string, string>>
}

export async function mcpThrough(
  t: Test,
  capabilities: readonly string[],
  { proven = true, files = {} }: Options = {},
): Promise<McpThrough> {
  const dpop = `plugin: dpop\negress_dpop_mode: ${proven ? 'required' : 'optional'}\n`
  const stage = await mcpStage(t, { files: { '20-dpop.yaml': dpop, ...files } })
  const directory = await identityDirectory(t, stage, capabilities)
  const bindings = new Map<string, string>()
  const session = clientSession(readIdentity(directory))
  t.teardown(() => session.close())
  return {
    stage,
    directory,
    fetch: createFetch(directory),
    behind: async (name, server, { bound = true, ...more } = {}) => {
      const resource = await stage.register(name, server, { required_capability: `${name}.use`, ...more })
      if (!bound) return
      // A binding names the agent; it shows no certificate.
      const { binding_id } = await stage.bind({ id: 'acme::bot', cert: '', key: '' }, resource)
      bindings.set(name, binding_id)
    },
    unbind: async (name) => {
      const { status } = await stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${bindings.get(name)}`)
      t.equal(status, 204)
    },
    decisions: async (version) => {
      const jwk = JSON.parse(readFileSync(join(directory, 'dpop.jwk'), 'utf8'))
      return decisions(t, stage, proven ? await calculateJwkThumbprint(jwk) : null, version)
    },
  }
}

async function decisions(
  t: Test,
  stage: Stage,
  dpop_jkt: string | null,
  mcp_version: string,
): Promise<readonly string[]> {
  await stage.close()
  const rows = (await stage.rows()).filter(isDecision)
  for (const row of rows) {
    t.match(row, { principal_id: 'acme::bot', dpop_jkt }, `${row.tool ?? row.action}, bound`)
    // The first message of a legacy client names no version in its header.
    if (row.action !== 'mcp_request') t.equal(row.detail.mcp_version, mcp_version)
  }
  return rows.map(({ action, tool, status }) => `${tool ?? action} ${status}`)
}

// What the dpop plugin itself refuses proves nothing: the call with which a session learns its first nonce is
// one of these.
const isDecision = ({ action, status, detail }: AuditRow): boolean =>
  action.startsWith('mcp_') &&
  !action.includes('.') &&
  ['allowed', 'denied', 'invalid'].includes(status) &&
  detail.refused_by !== 'dpop'

/**
 * The clients of the official SDKs, v1, and v2 in each of its modes, and the version that each speaks here.
 */
export const PEERS = {
  v1: '2025-11-25',
  legacy: '2025-11-25',
  modern: '2026-07-28',
  auto: '2026-07-28',
} as const satisfies Record<'v1' | Mode, string>

export type Kind = keyof typeof PEERS

/**
 * What both major versions of the official SDK can do, in one form. A JSON-RPC error rejects, as the SDK's
 * own class.
 */
export interface Peer {
  readonly tools: () => Promise<readonly string[]>
  /** `onprogress` asks for progress, and is given what comes. */
  readonly call: (name: string, args?: Json, onprogress?: (progress: Json) => void) => Promise<Json>
  readonly prompts: () => Promise<readonly string[]>
  readonly prompt: (name: string, args?: Json) => Promise<Json>
  readonly resources: () => Promise<readonly string[]>
  readonly templates: () => Promise<readonly string[]>
  readonly read: (uri: string) => Promise<Json>
  readonly complete: (params: Json) => Promise<Json>
  /** What its constructor is called for a JSON-RPC error. */
  readonly errorName: 'McpError' | 'ProtocolError'
}

/** Connects to a door: the part of its path behind `/v1/mcp`. */
export async function peerAt(t: Test, { stage, fetch }: McpThrough, kind: Kind, door = ''): Promise<Peer> {
  const url = `${stage.url}/v1/mcp${door}`
  if (kind === 'v1') {
    const client = await sdkV1(t, url, fetch)
    return {
      ...common(client),
      call: (name, args = {}, onprogress) =>
        client.callTool({ name, arguments: args }, undefined, onprogress && { onprogress }),
      errorName: 'McpError',
    }
  }
  const client = await sdkV2(t, url, fetch, kind)
  return {
    ...common(client),
    call: (name, args = {}, onprogress) =>
      client.callTool({ name, arguments: args }, onprogress && { onprogress }),
    errorName: 'ProtocolError',
  }
}

type Client = Awaited<ReturnType<typeof sdkV1>> | Awaited<ReturnType<typeof sdkV2>>

function common(client: Client): Omit<Peer, 'call' | 'errorName'> {
  const names = (of: readonly { readonly name: string }[]): readonly string[] => of.map(({ name }) => name)
  return {
    tools: async () => names((await client.listTools()).tools),
    prompts: async () => names((await client.listPrompts()).prompts),
    prompt: (name, args = {}) => client.getPrompt({ name, arguments: args }),
    resources: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    templates: async () =>
      (await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate),
    read: (uri) => client.readResource({ uri }),
    complete: (params) => client.complete(params),
  }
}
