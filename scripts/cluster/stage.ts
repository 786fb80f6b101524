import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { writePrivateFile } from '../../certs/authority/key-store.ts'
import { errorCode } from '../../plugins/operator-files/secret-file.ts'
import { openControl } from '../../proxy/http/control-socket.ts'
import { freePort, isPortFree } from '../free-port.ts'
import { startDatabase } from './database.ts'
import { type ClusterBalancer, haproxyProgram, startBalancer } from './haproxy.ts'
import { type GatewayReplica, type SharedEnvironment, startReplica } from './replica.ts'
import { interruption } from './tied.ts'

interface ClusterView {
  readonly directory: string
  readonly replicas: readonly GatewayReplica[]
  readonly databaseUrl: string
  /** The balancer's. Null: there is none. */
  readonly port: number | null
}

export function clusterGuide({ directory, replicas, databaseUrl, port }: ClusterView): string {
  const [first] = replicas
  const place = shortPath(directory)
  const url = port === null ? (first?.url ?? '') : `https://localhost:${port}`
  const control = `MCP_PROXY_DATA_DIR=${place}/${first?.name}`
  const identity = 'agents/cluster-agent'
  return `
${port === null ? withoutBalancer(replicas) : `HAProxy is in front of ${replicas.length} replicas: ${url}`}

In another terminal:

  # enroll an agent at any replica: all of them know it from its next call on
  ${control} make agent NAME=cluster-agent CAPS=llm.chat

  # call as it${port === null ? '' : ', through the balancer: each connection goes to another replica'}
  curl --cacert ${identity}/org-ca.crt --cert ${identity}/agent.crt --key ${identity}/agent.key ${url}/v1/models

  # kill a replica: its calls fail, and the same calls work at the others
  kill -9 ${first?.tied.pid}

  # verify the ledger, with a stream of each replica
  make verify-audit FILE="${databaseUrl}"

Logs: ${place}/replica-*.log. Everything is kept in ${place}, and the next start uses it again.
Ctrl-C ends all of it.`
}

function withoutBalancer(replicas: readonly GatewayReplica[]): string {
  return `There is no HAProxy on this machine (install it, e.g. apt-get install haproxy or brew install haproxy, and start again),
so nothing is in front of the replicas:
${replicas.map(({ name, url }) => `  ${name}  ${url}`).join('\n')}`
}

function shortPath(directory: string): string {
  const path = relative(process.cwd(), directory)
  return path.startsWith('..') || path === '' ? directory : path
}

interface ClusterOptions {
  readonly directory: string
  readonly replicas: number
  /** The balancer's. 0: any. */
  readonly port: number
}

/**
 * The balancer's own address, so that calls to a replica itself stay what they are. Linux has all of 127/8.
 */
const BALANCER = process.platform === 'linux' ? '127.0.0.2' : null
const CHECK_MS = 2_000

/**
 * Runs the cluster until Ctrl-C, or rejects when a part that it needs has ended. All that it started has
 * ended when it settles; its directory stays.
 */
export async function runCluster(wanted: ClusterOptions): Promise<void> {
  const interrupted = interruption('the cluster was stopped before it was ready')
  const directory = resolve(wanted.directory)
  const haproxy = haproxyProgram()
  const port = wanted.port === 0 ? await freePort() : wanted.port
  if (haproxy !== null && !(await isPortFree(port))) throw new Error(portTaken(port))
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await using stage = new AsyncDisposableStack()
  // Also the lease of the directory.
  const control = await openControl(directory)
  stage.defer(control.close)
  const say = (line: string): void => {
    interrupted.throwIfAborted()
    process.stdout.write(`${line}\n`)
  }
  try {
    await run({ ...wanted, port, directory, haproxy }, stage, interrupted, say)
  } catch (error) {
    if (errorCode(error) !== 'EPIPE') throw error
  }
  process.stderr.write('stopping: calls under way may finish (Ctrl-C again cuts them off)\n')
}

async function run(
  { directory, replicas: count, port, haproxy }: ClusterOptions & { readonly haproxy: string | null },
  stage: AsyncDisposableStack,
  interrupted: AbortSignal,
  say: (line: string) => void,
): Promise<void> {
  const database = await startDatabase(directory)
  stage.defer(database.stop)
  say(`PostgreSQL is up (pid ${database.tied.pid})`)
  // Its socket's path must be short, and the cluster's directory may be anywhere.
  const files = await mkdtemp(join(tmpdir(), 'sallyport-haproxy-'))
  stage.defer(() => rm(files, { recursive: true, force: true }))
  let balancer: ClusterBalancer | null = null
  // After the replicas in this list, so ended after them: calls under way go through it to their end.
  stage.defer(async () => {
    balancer?.tied.signal('SIGTERM')
    await balancer?.tied.ended
  })
  const shared = await sharedSettings(directory, database.url, haproxy === null ? null : port)
  const replicas: GatewayReplica[] = []
  stage.defer(() => stopReplicas(replicas))
  const starts = Array.from({ length: count }, async (_, n) => {
    replicas.push(await startReplica(directory, `replica-${n + 1}`, shared))
  })
  await settleAll(starts)
  replicas.sort((one, other) => one.name.localeCompare(other.name, 'en', { numeric: true }))
  for (const { name, url, tied } of replicas) say(`${name} is up: ${url} (pid ${tied.pid})`)
  if (haproxy !== null) balancer = await startBalancer(haproxy, balancerOptions(files, port, replicas))
  say(clusterGuide({ directory, replicas, databaseUrl: database.url, port: haproxy === null ? null : port }))
  await waitForEnd({ database: database.tied, balancer, replicas }, interrupted, say)
}

/** Waits until all have ended before the first failure is reported: none is left over. */
async function settleAll(starts: readonly Promise<void>[]): Promise<void> {
  const results = await Promise.allSettled(starts)
  for (const result of results) if (result.status === 'rejected') throw result.reason
}

async function sharedSettings(
  directory: string,
  databaseUrl: string,
  port: number | null,
): Promise<SharedEnvironment> {
  const passphrase = join(directory, 'key-passphrase')
  if (!existsSync(passphrase)) await writePrivateFile(passphrase, randomBytes(32).toString('base64url'))
  return {
    MCP_PROXY_DATABASE_URL: databaseUrl,
    MCP_PROXY_KEY_PASSPHRASE_FILE: passphrase,
    // Clients sign in their proofs which URL they call.
    ...(port !== null && { MCP_PROXY_PUBLIC_URLS: `https://localhost:${port},https://127.0.0.1:${port}` }),
    ...(BALANCER !== null && { MCP_PROXY_PROXY_PROTOCOL: BALANCER }),
  }
}

const balancerOptions = (directory: string, port: number, replicas: readonly GatewayReplica[]) => ({
  directory,
  port,
  servers: replicas.map(({ url }) => `127.0.0.1:${new URL(url).port}`),
  proxyProtocol: BALANCER !== null,
  check: 'ready' as const,
  checkMs: CHECK_MS,
  ...(BALANCER !== null && { words: `source ${BALANCER}` }),
})

interface RunningCluster {
  readonly database: { readonly ended: Promise<{ readonly output: string }> }
  readonly balancer: ClusterBalancer | null
  readonly replicas: readonly GatewayReplica[]
}

/** Resolves at Ctrl-C. Rejects if all replicas have ended, or something that there is only one of. */
async function waitForEnd(
  { database, balancer, replicas }: RunningCluster,
  interrupted: AbortSignal,
  say: (line: string) => void,
) {
  const ends = replicas.map(async ({ name, tied, log }) => {
    const { code } = await tied.ended
    if (!interrupted.aborted) say(`${name} has ended (exit code ${code}); its log is ${log}`)
  })
  const stopped = new Promise<void>((done) => {
    if (interrupted.aborted) done()
    interrupted.addEventListener('abort', () => done(), { once: true })
  })
  await Promise.race([
    stopped,
    database.ended.then(() => complain('PostgreSQL has ended')),
    Promise.all(ends).then(() => complain('every replica has ended')),
    ...(balancer ? [balancer.tied.ended.then(() => complain('HAProxy has ended'))] : []),
  ])
}

function complain(why: string): never {
  throw new Error(`${why}: the cluster was stopped`)
}

/** Each drains; Ctrl-C once more cuts the calls still under way, as at a gateway that runs alone. */
async function stopReplicas(replicas: readonly GatewayReplica[]): Promise<void> {
  const stop = (): void => {
    for (const { tied } of replicas) tied.signal('SIGTERM')
  }
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, stop)
  stop()
  await Promise.all(replicas.map(({ tied }) => tied.ended))
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.off(name, stop)
}

const portTaken = (port: number): string =>
  `another process listens on 127.0.0.1:${port}: take another port, e.g. make cluster PORT=${port < 65_000 ? port + 100 : 9543}`
