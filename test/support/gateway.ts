import { hash } from 'node:crypto'
import { constants, existsSync, mkdtempSync, rmSync } from 'node:fs'
import { chmod, copyFile, cp, mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { Agent, request } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'
import { databaseLocation, openDatabase, readLedger } from '../../db/engine.ts'
import { type AuditRow, listRows } from '../../db/ledger/read/read.ts'
import { inspectRows } from '../../db/ledger/verify/inspect.ts'
import { inspectDatabase } from '../../db/sqlite/ledger/inspect.ts'
import { readSettings, type Settings } from '../../proxy/boot/settings.ts'
import { type Gateway, type GatewayOptions, startGateway } from '../../proxy/wiring/gateway.ts'
import { databaseSettings, ENGINE } from './db/engine.ts'
import { allRows } from './db/history.ts'
import { treeProblems } from './db/tree.ts'
import { fileOf } from './in-turn/file-test.ts'
import { MADE_ONCE, MIGRATED_FILE } from './made-once.ts'
import { type Administered, contradictions } from './openapi.ts'
import { completion, type TestUpstream, testUpstream } from './upstream.ts'

export const ADMIN_SECRET = 'correct-horse-battery'

/** The variable by which all gateways of a test file have TLS on streams: `false`. */
export const TLS_DIRECT = 'TEST_TLS_DIRECT'

/** What an agent holds: PEM texts. */
export interface Identity {
  readonly id: string
  readonly cert: string
  readonly key: string
}

export interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly bytes: Buffer
  readonly text: string
  // Parsed where it is JSON. Tests reach into it freely.
  readonly json: Json
}

// biome-ignore lint/suspicious/noExplicitAny: a test reads the answer as its caller would, field by field
export type Json = any

export interface Asked {
  readonly headers?: Record<string, string>
  readonly body?: unknown
  /** Default: one that keeps its connections, for each identity. */
  readonly agent?: Agent
}

export interface TestGateway extends Gateway {
  readonly settings: Settings
  readonly ca: string
  readonly upstream: TestUpstream
  /** The lines logged so far, parsed. */
  readonly log: readonly Json[]
  readonly pluginsDir: string
  /** Calls with a client certificate, or without one. A body that is no string or Buffer is sent as JSON. */
  readonly call: (who: Identity | null, method: string, path: string, asked?: Asked) => Promise<Answered>
  /** Calls the admin API with the operator's secret. */
  readonly admin: (
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ) => Promise<Answered>
  readonly enroll: (name: string, capabilities: readonly string[]) => Promise<Identity>
  /**
   * Every audit row, oldest first. Outcome rows follow their answers: close the gateway before you look for
   * them.
   */
  readonly rows: (filter?: Parameters<typeof listRows>[1]) => Promise<readonly AuditRow[]>
}

export interface TestOptions extends GatewayOptions {
  readonly settings?: Record<string, string>
  /** Operator files, by name: added to, or in place of, {@link PLUGIN_FILES}. Null leaves one out. */
  readonly files?: Readonly<Record<string, string | null>>
  /** True: a CA that no other gateway of this run has. */
  readonly ownCa?: boolean
  /**
   * Whether the whole audit chain must verify when the test ends. Default true; false where the test breaks
   * it.
   */
  readonly verify?: boolean
  /** True: the test writes rows or tables itself, which are then not compared with each other. */
  readonly editsTables?: boolean
}

/** The operator files of a test gateway. `UPSTREAM` stands for the test provider's address. */
export const PLUGIN_FILES: Readonly<Record<string, string>> = {
  '10-pin.yaml': 'plugin: pin\n',
  '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: optional\n',
  '30-capability.yaml': 'plugin: capability\n',
  '40-audit.yaml': 'plugin: audit\n',
  '50-llm.yaml': `plugin: llm
default_provider: openai
providers:
  - name: openai
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-openai
    models: ["gpt-*"]
  - name: anthropic
    dialect: anthropic
    base_url: UPSTREAM/v1
    api_key: sk-upstream-anthropic
    models: ["claude-*"]
`,
}

/**
 * A whole gateway on a directory and ports of its own. When the test ends it is closed, its whole chain
 * verified, each of its decisions recomputed from the rows before it, and what `admin` was answered compared with what `/openapi.json` says of it.
 */
export async function testGateway(t: Test, options: TestOptions = {}): Promise<TestGateway> {
  const upstream = await testUpstream(t)
  const root = await scratch(t)
  const pluginsDir = join(root, 'config')
  await writeFiles(pluginsDir, { ...PLUGIN_FILES, ...options.files }, upstream.url)
  const settings = readSettings(
    {
      MCP_PROXY_LISTEN: '127.0.0.1:0',
      MCP_PROXY_DATA_DIR: join(root, 'data'),
      MCP_PROXY_PLUGINS_DIR: pluginsDir,
      MCP_PROXY_ADMIN_SECRET: ADMIN_SECRET,
      MCP_PROXY_TLS_DIRECT: process.env[TLS_DIRECT] ?? 'true',
      ...(await databaseSettings(options.settings?.MCP_PROXY_DATA_DIR ?? join(root, 'data'))),
      ...options.settings,
    },
    root,
  )
  const log: Json[] = []
  const logTo = new Writable({
    write(chunk: Buffer, _encoding, done) {
      for (const line of chunk.toString().split('\n')) if (line !== '') log.push(JSON.parse(line))
      done()
    },
  })
  const ca = options.ownCa ? null : keptCa(settings, options)
  if (ca !== null) await furnish(settings, ca)
  const gateway = await startGateway(settings, { env: {}, logTo, ...options })
  if (ca !== null) await keepCa(settings, ca)
  const administered: Administered[] = []
  const agents = new Map<string | null, Agent>()
  t.teardown(async () => {
    for (const agent of agents.values()) agent.destroy()
    await gateway.close(0)
    if (options.verify !== false) await verifyWhole(t, settings, options)
    // Where administration has a listener of its own, what is described is not served on the other one.
    if (settings.adminListen === null) for (const wrong of contradictions(administered)) t.fail(wrong)
  })
  return {
    ...gateway,
    settings,
    upstream,
    log,
    pluginsDir,
    ...(await caller(gateway, settings, administered, agents)),
  }
}

/** The state of the file that asked last: files follow each other. */
let shared: { readonly file: Test; readonly opened: Promise<TestGateway>; guests: number } | null = null

/**
 * The gateway of a test file, for tests that need none of their own: opened for the first of them, closed and verified
 * when the file ends. Each test sees its own part alone: the rows and the log from its beginning on, an upstream that
 * has seen nothing and answers as it does at first, and agents whose names nobody else has (`bot` is `bot-2` in the
 * second test). A test that closes the gateway, changes a setting, or counts what all callers did has one of its own.
 */
export async function sharedGateway(t: Test): Promise<TestGateway> {
  const file = fileOf(t)
  if (shared?.file !== file) shared = { file, opened: testGateway(file), guests: 0 }
  shared.guests += 1
  const suffix = shared.guests === 1 ? '' : `-${shared.guests}`
  const gateway = await shared.opened
  const { upstream, log } = gateway
  const [logged, last] = [log.length, (await gateway.rows({ order: 'desc', limit: 1 })).at(0)?.seq ?? 0]
  t.teardown(() => {
    upstream.answer = completion
    upstream.seen.length = 0
  })
  return {
    ...gateway,
    get log() {
      return log.slice(logged)
    },
    enroll: (name, capabilities) => gateway.enroll(`${name}${suffix}`, capabilities),
    rows: async (filter) => (await gateway.rows(filter)).filter(({ seq }) => seq > last),
    close: () => Promise.reject(new Error('other tests share this gateway')),
  }
}

// Sealing keys is slow by design, and the gateways of a run may as well have the same CA: the first one makes
// it, those after it find it in their data directory, as a gateway does that starts again.
function keptCa({ org, trustDomain, keyPassphrase }: Settings, { clock }: TestOptions): string {
  const key = hash('sha256', JSON.stringify([org, trustDomain, keyPassphrase]))
  // The CA of another time may not be valid for other files.
  const kept = (clock ? undefined : process.env[MADE_ONCE]) ?? ownFolder()
  return join(kept, `ca-${key.slice(0, 16)}`)
}

let own: string | null = null

function ownFolder(): string {
  if (own !== null) return own
  const made = mkdtempSync(join(tmpdir(), 'sallyport-ca-'))
  process.once('exit', () => rmSync(made, { recursive: true, force: true }))
  own = made
  return made
}

async function furnish({ dataDir }: Settings, kept: string): Promise<void> {
  if (existsSync(dataDir) || !existsSync(kept)) return
  await cp(kept, dataDir, { recursive: true, mode: constants.COPYFILE_EXCL })
  await chmod(dataDir, 0o700)
  // A database that has run all migrations, where test/run.ts has made one: it spares each gateway a tenth of a second.
  const run = process.env[MADE_ONCE]
  if (run !== undefined && ENGINE === 'sqlite')
    await copyFile(join(run, MIGRATED_FILE), join(dataDir, 'sallyport.db'))
}

async function keepCa({ dataDir, keyPassphrase }: Settings, kept: string): Promise<void> {
  if (existsSync(kept)) return
  const made = await mkdtemp(`${kept}-`)
  const names = keyPassphrase === null ? ['ca', 'key-passphrase'] : ['ca']
  for (const name of names) await cp(join(dataDir, name), join(made, name), { recursive: true })
  // Another file of the run may have been first.
  await rename(made, kept).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
  })
}

/**
 * A directory of its own, short enough for a Unix socket, gone with the test. One test may ask for several.
 */
export async function scratch(t: Test): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'sallyport-'))
  t.teardown(() => rm(root, { recursive: true, force: true }))
  return root
}

/** Writes operator files; a name that maps to null is left out. */
export async function writeFiles(
  directory: string,
  files: Readonly<Record<string, string | null>>,
  upstreamUrl: string,
): Promise<void> {
  await mkdir(directory, { recursive: true })
  for (const [name, text] of Object.entries(files)) {
    if (text !== null) await writeFile(join(directory, name), text.replaceAll('UPSTREAM', upstreamUrl))
  }
}

async function verifyWhole(
  t: Test,
  settings: Settings,
  { editsTables = false }: Pick<TestOptions, 'editsTables'>,
): Promise<void> {
  const database = await openDatabase(settings.databaseUrl)
  const { verdict, authority, findings } = database.file
    ? await inspectDatabase(database.file, Date.now(), (rows) => rows)
    : await inspectRows(allRows(database), { authority: true })
  const sealed = await treeProblems(database)
  await database.close()
  for (const problem of sealed) t.fail(`the tree: ${problem}`)
  for (const finding of editsTables ? [] : findings) {
    process.stderr.write(`${finding}\n`)
    t.fail(finding)
  }
  if (!verdict.ok) t.fail('the audit chain does not verify', verdict)
  if (!authority || authority.disagree === 0) return
  // The name of an assertion behind the end of its test is not shown.
  process.stderr.write(`${JSON.stringify(authority.problems)}\n`)
  t.fail('decisions do not follow from the rows before them')
}

async function caller(
  gateway: Gateway,
  settings: Settings,
  administered: Administered[],
  agents: Map<string | null, Agent>,
) {
  // The root, as an operator would hand it to a client: fetched once, trusted on first use on loopback.
  const { text: ca } = await ask(`${gateway.url}/pki/ca.crt`, 'GET', {
    agent: new Agent({ rejectUnauthorized: false }),
  })
  // A handshake costs both sides more than most requests.
  const keptAgent = (who: Identity | null): Agent => {
    const identity = who && `${who.cert}${who.key}`
    const agent = agents.get(identity) ?? agentOf(ca, who, true, Number.POSITIVE_INFINITY)
    agents.set(identity, agent)
    return agent
  }
  const call: TestGateway['call'] = (who, method, path, asked = {}) =>
    ask(gateway.url + path, method, { ...asked, agent: asked.agent ?? keptAgent(who) })
  const admin: TestGateway['admin'] = async (method, path, body, headers = {}) => {
    const asked = { body, headers: { 'x-admin-secret': ADMIN_SECRET, ...headers } }
    const answered = await call(null, method, path, asked)
    administered.push({ method, path, answered })
    return answered
  }
  const enroll: TestGateway['enroll'] = async (name, capabilities) => {
    const { status, json, text } = await admin('POST', '/v1/admin/agents', { agent_name: name, capabilities })
    if (status !== 201) throw new Error(`enrolling ${name}: ${status} ${text}`)
    return { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
  }
  const rows: TestGateway['rows'] = async (filter = { order: 'asc', limit: 1000 }) => {
    const ledger = await readLedger(databaseLocation(settings.databaseUrl))
    const page = await listRows(ledger.kysely, filter)
    await ledger.close()
    return page.rows
  }
  return { ca, call, admin, enroll, rows }
}

/**
 * A TLS agent that trusts the gateway's CA and presents an identity, or none. `keepAlive`: one connection for
 * all, or as many as `maxSockets` says.
 */
export function agentOf(
  ca: string,
  who: Identity | null,
  keepAlive = false,
  maxSockets = keepAlive ? 1 : Number.POSITIVE_INFINITY,
): Agent {
  const credentials = who ? { cert: who.cert, key: who.key } : {}
  return new Agent({ ca, ...credentials, keepAlive, maxSockets })
}

/** One HTTPS request, whole answer. */
export function ask(url: string, method: string, { headers = {}, body, agent }: Asked): Promise<Answered> {
  const payload =
    body === undefined || typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body)
  const type: Record<string, string> = payload === undefined ? {} : { 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const req = request(url, { method, agent, headers: { ...type, ...headers } }, (res) => {
      buffer(res).then((bytes) => {
        const text = bytes.toString()
        const isJson = res.headers['content-type'] === 'application/json' && text !== ''
        resolve({
          status: res.statusCode ?? 0,
          headers: res.headers,
          bytes,
          text,
          json: isJson ? JSON.parse(text) : null,
        })
      }, reject)
    })
    req.on('error', reject)
    req.end(payload)
  })
}

/** The smallest chat call. */
export const CHAT = { model: 'gpt-test', messages: [{ role: 'user', content: 'hi' }] }
