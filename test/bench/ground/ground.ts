import type { JsonWebKey } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openDataDirectory } from '../../../proxy/boot/data-directory.ts'
import { readSettings } from '../../../proxy/boot/settings.ts'
import { tlsMaterial } from '../../../proxy/tasks/follow-authority.ts'
import { type AdminCall, expectStatus } from '../../../scripts/admin/call.ts'
import { withControl } from '../../../scripts/admin/control.ts'
import { newDpopKey, publicDpopJwk } from '../../../scripts/client/signing/dpop-key.ts'
import { registerMcp } from './mcp.ts'

/** The checkout that this file belongs to. */
const ROOT = join(import.meta.dirname, '../../..')

/** A client's identity as PEM texts. */
export interface Identity {
  readonly ca: string
  readonly cert: string
  readonly key: string
}

/** An agent that has registered a key for DPoP proofs. */
export interface ProvenIdentity extends Identity {
  /** Private. */
  readonly dpopKey: JsonWebKey
}

/** Everything the servers of a run share, in a directory that goes with the run. */
export interface Ground {
  readonly directory: string
  /** The checkout of its gateway, with its node_modules. */
  readonly root: string
  /** The environment of a gateway on this ground. */
  readonly env: Readonly<Record<string, string>>
  readonly dataDir: string
  /** Holds llm.chat and mcp.tools.call, and is bound to both MCP servers. */
  readonly allowed: Identity
  /** Known, and holds nothing. */
  readonly denied: Identity
  /** Holds the same as `allowed`, and has a DPoP key. */
  readonly proven: ProvenIdentity
}

/**
 * Makes a CA, a database with three agents and two MCP servers (the upstream, which must run), the operator's
 * files, and PEM files for the servers that are not ours. `more`: settings of the gateways.
 */
export async function layGround(
  directory: string,
  upstreamPort: number,
  more: Ground['env'] = {},
): Promise<Ground> {
  const env = { ...(await operatorsEnv(directory, upstreamPort)), ...more }
  const settings = readSettings(env, directory)
  const agents = await withControl(settings, (call) => enrollAgents(call, upstreamPort))
  const dataDirectory = await openDataDirectory(settings, 1_024, Date.now())
  const { certPem, keyPem } = await tlsMaterial(dataDirectory, Date.now())
  const { rootPem, intermediatePem } = dataDirectory.authority
  await dataDirectory.close()
  await writeFile(join(directory, 'server.crt'), certPem)
  await writeFile(join(directory, 'server.key'), keyPem, { mode: 0o600 })
  await writeFile(join(directory, 'clients-ca.crt'), intermediatePem + rootPem)
  return { directory, root: ROOT, env, dataDir: settings.dataDir, ...agents }
}

/** Writes the operator's files, and returns the environment of a gateway that reads them. */
export async function operatorsEnv(directory: string, upstreamPort: number): Promise<Ground['env']> {
  const pluginsDir = join(directory, 'config')
  await filesIn(pluginsDir, operatorFiles(upstreamPort))
  return {
    MCP_PROXY_LISTEN: '127.0.0.1:0',
    MCP_PROXY_DATA_DIR: join(directory, 'data'),
    MCP_PROXY_PLUGINS_DIR: pluginsDir,
    MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true',
  }
}

/** Makes the three agents by the gateway's own admin API, and binds them to the MCP servers. */
export async function enrollAgents(
  call: AdminCall,
  upstreamPort: number,
): Promise<Pick<Ground, 'allowed' | 'denied' | 'proven'>> {
  const enrolled = await enroll(call)
  await registerMcp(call, upstreamPort, ['acme::allowed', 'acme::proven'])
  return enrolled
}

const CAPABILITIES = ['llm.chat', 'mcp.tools.call']

async function enroll(call: AdminCall): Promise<Pick<Ground, 'allowed' | 'denied' | 'proven'>> {
  const ca = String((await call('GET', '/pki/ca.crt')).body)
  const mint = async (name: string, capabilities: readonly string[]): Promise<Identity> =>
    identityOf(
      ca,
      expectStatus(await call('POST', '/v1/admin/agents', { agent_name: name, capabilities }), 201),
    )
  const allowed = await mint('allowed', CAPABILITIES)
  const denied = await mint('denied', [])
  const proven = await mint('proven', CAPABILITIES)
  const dpopKey = newDpopKey()
  expectStatus(await call('POST', '/v1/admin/agents/acme::proven/dpop-jwk', publicDpopJwk(dpopKey)), 200)
  return { allowed, denied, proven: { ...proven, dpopKey } }
}

function identityOf(ca: string, agent: Record<string, unknown>): Identity {
  return { ca, cert: String(agent.cert_chain_pem), key: String(agent.private_key_pem) }
}

/** Writes the files of a gateway whose collector is the upstream, which takes everything. Returns their directory. */
export const telemetryFiles = ({ directory }: Ground, upstreamPort: number): Promise<string> =>
  filesIn(join(directory, 'config-telemetry'), {
    ...operatorFiles(upstreamPort),
    '80-telemetry.yaml': `plugin: telemetry\nendpoint: http://127.0.0.1:${upstreamPort}\nsignals: [traces, metrics, logs]\n`,
  })

/** Writes the files of a gateway whose providers speak one API each. Returns their directory. */
export function translatingFiles({ directory }: Ground, upstreamPort: number): Promise<string> {
  const provider = (name: string, more: string): string =>
    `  - {name: ${name}, base_url: "http://127.0.0.1:${upstreamPort}/v1", api_key: sk-bench, ${more}}\n`
  return filesIn(join(directory, 'config-translating'), {
    ...operatorFiles(upstreamPort),
    '50-llm.yaml': `plugin: llm\nproviders:\n${provider('claude', 'dialect: anthropic, cache: off, models: ["claude-*"]')}${provider('fixed', 'dialect: openai, server: vllm, speaks: [chat], models: ["*"]')}`,
  })
}

async function filesIn(pluginsDir: string, files: Readonly<Record<string, string>>): Promise<string> {
  await mkdir(pluginsDir, { recursive: true })
  for (const [name, text] of Object.entries(files)) await writeFile(join(pluginsDir, name), text)
  return pluginsDir
}

const operatorFiles = (upstreamPort: number): Readonly<Record<string, string>> => ({
  '10-pin.yaml': 'plugin: pin\n',
  '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\n',
  '30-capability.yaml': 'plugin: capability\n',
  '40-audit.yaml': 'plugin: audit\n',
  '50-llm.yaml': `plugin: llm
default_provider: fixed
providers:
  - name: fixed
    dialect: openai
    base_url: http://127.0.0.1:${upstreamPort}/v1
    api_key: sk-bench
    models: ["*"]
`,
})
