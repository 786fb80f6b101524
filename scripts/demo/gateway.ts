import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { LLMock } from '@copilotkit/aimock'
import { Agent, fetch } from 'undici'
import { startGatewayProcess } from '../cluster/replica.ts'
import { isPortFree } from '../free-port.ts'

export interface MockProvider {
  readonly url: string
  /** The one key it answers to. */
  readonly key: string
  /** The status of each LLM call that came, in order. */
  readonly answered: () => readonly number[]
  readonly stop: () => Promise<void>
}

const SAID = 'Hello from the provider behind the gateway.'
const STREAMED = 'Each piece of this answer is passed on the moment it comes.'

export async function startMockProvider(): Promise<MockProvider> {
  const key = `sk-demo-${randomBytes(12).toString('hex')}`
  const mock = new LLMock({ port: 0, host: '127.0.0.1', auth: { apiKeys: [key] } })
  const usage = { prompt_tokens: 8, completion_tokens: 14, input_tokens: 8, output_tokens: 14 }
  mock.onMessage('slowly', { content: STREAMED, usage }, { chunkSize: 8, latency: 60 })
  mock.onMessage(/./, { content: SAID, usage }, { chunkSize: 8, latency: 60 })
  const url = await mock.start()
  return {
    url,
    key,
    answered: () =>
      mock
        .getRequests()
        .filter(({ method }) => method === 'POST')
        .map(({ response }) => response.status),
    stop: () => mock.stop(),
  }
}

/** The operator files of a gateway before the mock. The key comes from the environment. */
const demoOperatorFiles = (url: string): Readonly<Record<string, string>> => ({
  '10-pin.yaml': 'plugin: pin\n',
  '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\n',
  '30-capability.yaml': 'plugin: capability\n',
  '40-audit.yaml': 'plugin: audit\n',
  '50-llm.yaml': `plugin: llm
providers:
  - name: openai
    dialect: openai
    base_url: ${url}/v1
    api_key: \${env:DEMO_PROVIDER_KEY}
    models: ["gpt-*"]
  - name: anthropic
    dialect: anthropic
    base_url: ${url}/v1
    api_key: \${env:DEMO_PROVIDER_KEY}
    models: ["claude-*"]
`,
  '60-mcp.yaml': 'plugin: mcp\n',
})

export interface DemoGateway {
  readonly url: string
  readonly directory: string
  readonly adminSecret: string
  /** Calls the admin API with the operator's secret. Rejects if the status is not 2xx. */
  readonly admin: (
    method: string,
    path: string,
    body?: unknown,
    headers?: Readonly<Record<string, string>>,
  ) => Promise<unknown>
  /** Runs a verb of `sallyport` alongside the gateway and gives its standard output. Rejects if it fails. */
  readonly sallyport: (verb: string, ...args: readonly string[]) => Promise<string>
  /** Runs `sallyport rehearse`. Rejects if that fails; calls that would be stopped are no failure. */
  readonly rehearse: (
    ...args: readonly string[]
  ) => Promise<{ readonly stops: boolean; readonly out: string }>
  /** Resolves with a sentence when the process has ended. */
  readonly ended: Promise<string>
  readonly stop: () => Promise<void>
}

interface DemoGatewayOptions {
  readonly directory: string
  readonly port: number | null
  readonly provider: MockProvider
}

const DEFAULT_PORT = 9443

export async function startDemoGateway({
  directory,
  port,
  provider,
}: DemoGatewayOptions): Promise<DemoGateway> {
  const adminSecret = randomBytes(18).toString('base64url')
  await writeOperatorFiles(directory, provider.url)
  const env = {
    // Each verb is a process of its own, and takes the files that the first one has compiled.
    NODE_COMPILE_CACHE: join(directory, 'compiled'),
    ...ownEnvironment(),
    DEMO_PROVIDER_KEY: provider.key,
    MCP_PROXY_LISTEN: `127.0.0.1:${port ?? ((await isPortFree(DEFAULT_PORT)) ? DEFAULT_PORT : 0)}`,
    MCP_PROXY_DATA_DIR: join(directory, 'data'),
    MCP_PROXY_PLUGINS_DIR: join(directory, 'config'),
    MCP_PROXY_ADMIN_SECRET: adminSecret,
    // The demo's MCP servers are on this machine.
    MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true',
    MCP_PROXY_SHUTDOWN_GRACE_S: '2',
  }
  const { url, tied } = await startGatewayProcess(join(directory, 'gateway.log'), env)
  const ended = tied.ended.then(({ code, output }) => {
    // Lines of the log are JSON.
    const complaint = output
      .trim()
      .split('\n')
      .findLast((line) => !line.startsWith('{'))
    return `the gateway ended (exit code ${code}): ${complaint ?? ''}`
  })
  if (url === null) throw new Error(await ended)
  return {
    url,
    directory,
    adminSecret,
    admin: adminOf(url, directory, adminSecret),
    sallyport: async (verb, ...args) => (await runVerb(verb, args, env)).out,
    rehearse: async (...args) => {
      const { code, out } = await runVerb('rehearse', args, env, [0, WOULD_REFUSE])
      return { stops: code === WOULD_REFUSE, out }
    },
    ended,
    stop: async () => {
      tied.signal('SIGTERM')
      await tied.ended
    },
  }
}

const SALLYPORT = join(import.meta.dirname, '../sallyport.ts')

const WOULD_REFUSE = 3

async function runVerb(
  verb: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  accepted: readonly number[] = [0],
): Promise<{ readonly code: number; readonly out: string }> {
  const child = spawn(process.execPath, [SALLYPORT, verb, ...args], { env, stdio: 'pipe' })
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  const code = child.exitCode ?? -1
  if (accepted.includes(code)) return { code, out }
  throw new Error(`${verb} failed: ${(out + err).trim().split('\n').at(-1)}`)
}

/**
 * The caller's environment without its own gateway's settings: the demo must not meet a real data directory.
 */
function ownEnvironment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('MCP_PROXY_')))
}

async function writeOperatorFiles(directory: string, providerUrl: string): Promise<void> {
  await mkdir(join(directory, 'config'))
  for (const [name, yaml] of Object.entries(demoOperatorFiles(providerUrl))) {
    await writeFile(join(directory, 'config', name), yaml)
  }
}

function adminOf(url: string, directory: string, secret: string): DemoGateway['admin'] {
  return async (method, path, body, more = {}) => {
    // The root is in the file that operators hand to clients.
    const ca = await readFile(join(directory, 'data', 'org-ca.crt'), 'utf8')
    const dispatcher = new Agent({ connect: { ca } })
    const headers = { 'x-admin-secret': secret, 'content-type': 'application/json', ...more }
    try {
      const payload = body === undefined ? {} : { body: JSON.stringify(body) }
      const response = await fetch(url + path, { method, headers, dispatcher, ...payload })
      if (!response.ok) throw new Error(`${method} ${path} was answered ${response.status}`)
      return await response.json()
    } finally {
      await dispatcher.close()
    }
  }
}
