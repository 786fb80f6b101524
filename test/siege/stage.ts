import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readSettings } from '../../proxy/boot/settings.ts'
import { type AdminCall, expectStatus } from '../../scripts/admin/call.ts'
import { withControl } from '../../scripts/admin/control.ts'
import type { Child, Children } from '../bench/ground/children.ts'
import { asStarted } from '../bench/ground/gateway.ts'
import { type Ground, type Identity, layGround } from '../bench/ground/ground.ts'
import type { Target } from './attacks/target.ts'
import type { Wish } from './callers.ts'
import { HOSTILE_SERVERS } from './hostile-server.ts'
import { recordOldRows } from './old-rows.ts'

/** Everything that runs, and who knows what of it. */
export interface Stage {
  readonly gateway: Child
  readonly callers: Child
  readonly attackers: Child
  readonly target: Target
  readonly begin: Omit<Extract<Wish, { kind: 'begin' }>, 'perSecond' | 'log'>
  readonly databaseFile: string
  /** Where old rows are archived meanwhile. */
  readonly archive: string
  /** Calls the gateway's admin API as its local operator. */
  readonly call: AdminCall
}

/**
 * Starts the upstreams, the gateway before them as `make start` does, with rows of the days before, its callers and its
 * attackers.
 */
export async function setStage(directory: string, children: Children, oldRowsPerDay: number): Promise<Stage> {
  const upstream = await children.start(node('upstream', '../bench/ground/upstream.ts'))
  const hostile = await children.start(node('hostile', 'hostile-server.ts'))
  const ground = await layGround(directory, upstream.port)
  const config = join(directory, 'config')
  await writeFile(join(config, '50-llm.yaml'), providers(upstream.port, hostile.port))
  await writeFile(join(config, '60-mcp.yaml'), 'plugin: mcp\nrefresh_interval_s: 0\n')
  const settings = readSettings(ground.env, directory)
  const archive = await recordOldRows(settings, directory, oldRowsPerDay)
  const adminSecret = randomBytes(18).toString('base64url')
  const gateway = await children.start({
    ...(await asStarted(ground.root, 'gateway', {
      ...ground.env,
      MCP_PROXY_ADMIN_SECRET: adminSecret,
      // A line for each refusal would fill the disk before the ledger does.
      MCP_PROXY_LOG_LEVEL: 'warn',
    })),
    core: null,
  })
  const { pid, port } = gateway
  const call: AdminCall = (method, path, body) => withControl(settings, (ask) => ask(method, path, body))
  const [json, streams, agent, rogue] = await agentsOf(ground, call)
  const servers = await registerHostile(call, hostile.port)
  return {
    gateway,
    callers: await children.start(talking('callers')),
    attackers: await children.start(talking('attackers')),
    target: { port, pid, env: ground.env, directory, rogue, empty: ground.denied, hostile: servers },
    begin: {
      kind: 'begin',
      honest: { port, json, streams, tools: ground.allowed, proven: ground.proven },
      operator: { port, ca: json.ca, adminSecret, agentId: 'acme::granted', agent },
    },
    databaseFile: settings.databaseUrl.slice('sqlite:'.length),
    archive,
    call,
  }
}

const node = (name: string, file: string) =>
  ({
    name,
    command: process.execPath,
    args: [join(import.meta.dirname, file)],
    core: null,
    ready: 'line',
    ipc: true,
  }) as const

/** A child that says that it is ready in a message. */
const talking = (name: string) => ({
  ...node(name, `${name}.ts`),
  ready: async (child: Child['process']) => {
    await once(child, 'message', { signal: AbortSignal.timeout(20_000) })
    return 0
  },
})

async function agentsOf(
  { allowed }: Ground,
  call: AdminCall,
): Promise<[Identity, Identity, Identity, Identity]> {
  const mint = async (agent_name: string): Promise<Identity> => {
    const capabilities = agent_name === 'rogue' ? ['llm.chat', 'mcp.tools.call'] : ['llm.chat']
    const made = expectStatus(await call('POST', '/v1/admin/agents', { agent_name, capabilities }), 201)
    return { ca: allowed.ca, cert: String(made.cert_chain_pem), key: String(made.private_key_pem) }
  }
  return [await mint('json'), await mint('streams'), await mint('granted'), await mint('rogue')]
}

async function registerHostile(call: AdminCall, port: number): Promise<Record<string, string>> {
  const ids: Record<string, string> = {}
  for (const name of HOSTILE_SERVERS) {
    const resource = { name, endpoint_url: `http://127.0.0.1:${port}/${name}` }
    const { resource_id } = expectStatus(await call('POST', '/v1/admin/mcp-resources', resource), 201)
    const binding = { agent_id: 'acme::rogue', resource_id }
    expectStatus(await call('POST', '/v1/admin/mcp-resources/bindings', binding), 201)
    ids[name] = String(resource_id)
  }
  return ids
}

const providers = (upstreamPort: number, hostilePort: number): string => `plugin: llm
default_provider: fixed
providers:
  - name: fixed
    dialect: openai
    base_url: http://127.0.0.1:${upstreamPort}/v1
    api_key: sk-siege
    models: ["json-*", "paced-*", "burst-*"]
  - name: hostile
    dialect: openai
    base_url: http://127.0.0.1:${hostilePort}/v1
    api_key: sk-siege
    models: ["hostile-*"]
`
