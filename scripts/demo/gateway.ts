import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { Agent, fetch } from 'undici'
import { isPortFree } from '../free-port.ts'
import { readyUrl } from '../ready-line.ts'
import { demoOperatorFiles, type MockProvider } from './provider.ts'

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
  const child = spawn(process.execPath, [fileOf('../../proxy/main.ts')], {
    env,
    cwd: directory,
    stdio: 'pipe',
  })
  const ended = endOf(child)
  const url = await Promise.race([ready(child, join(directory, 'gateway.log')), ended.then(complain)])
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
    stop: () => stop(child),
  }
}

const fileOf = (path: string): string => join(import.meta.dirname, path)

const WOULD_REFUSE = 3

async function runVerb(
  verb: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  accepted: readonly number[] = [0],
): Promise<{ readonly code: number; readonly out: string }> {
  const child = spawn(process.execPath, [fileOf('../sallyport.ts'), verb, ...args], { env, stdio: 'pipe' })
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

/** Waits for the ready line. All that the gateway logs goes to a file in the scratch directory. */
function ready(child: ChildProcess, logFile: string): Promise<string> {
  const log = createWriteStream(logFile, { mode: 0o600 })
  child.stderr?.pipe(log, { end: false })
  child.stdout?.pipe(log, { end: false })
  return new Promise((resolve) => {
    if (!child.stdout) return
    const lines = createInterface(child.stdout)
    lines.on('line', (line) => {
      const url = readyUrl(line)
      if (url === null) return
      lines.removeAllListeners('line')
      resolve(url)
    })
  })
}

async function endOf(child: ChildProcess): Promise<string> {
  let complaint = ''
  child.stderr?.on('data', (chunk: Buffer) => {
    complaint = chunk.toString().trim().split('\n').at(-1) ?? ''
  })
  const [code, signal] = await once(child, 'close')
  return `the gateway ended (${signal ?? `exit code ${code}`}): ${complaint}`
}

function complain(why: string): never {
  throw new Error(why)
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  await ended
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
