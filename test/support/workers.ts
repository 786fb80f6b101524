import { readFileSync } from 'node:fs'
import { Agent } from 'node:https'
import type { Test } from 'tap'
import { openDatabase } from '../../db/engine.ts'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import { inspectRows } from '../../db/ledger/verify/inspect.ts'
import { allRows } from './db/history.ts'
import { listedRows } from './db/listed-rows.ts'
import { cluster } from './db/postgres/cluster.ts'
import {
  ADMIN_SECRET,
  type Answered,
  type Asked,
  agentOf,
  ask,
  type Identity,
  type Json,
  scratch,
} from './gateway.ts'
import { environment, type Process, startProcess } from './process.ts'
import { eventually } from './settled.ts'
import { type TestUpstream, testUpstream } from './upstream.ts'

export type Engine = 'sqlite' | 'postgres'

/** A gateway of several workers, as an operator starts it. */
export interface Workers extends Process {
  readonly url: string
  readonly ca: string
  readonly upstream: TestUpstream
  readonly env: Readonly<Record<string, string>>
  readonly databaseUrl: string
  /** The ids of its workers' processes. */
  readonly pids: () => readonly number[]
  /** Its log lines so far, parsed. */
  readonly lines: () => readonly Json[]
  readonly call: (who: Identity | null, method: string, path: string, asked?: Asked) => Promise<Answered>
  readonly admin: (method: string, path: string, body?: unknown) => Promise<Answered>
  readonly enroll: (name: string, capabilities: readonly string[]) => Promise<Identity>
}

interface Options {
  readonly engine: Engine
  readonly workers?: number
  readonly settings?: Readonly<Record<string, string>>
}

/** Starts a gateway of workers; it is killed with the test. */
export async function startWorkers(t: Test, { engine, workers = 2, settings }: Options): Promise<Workers> {
  const upstream = await testUpstream(t)
  const directory = await scratch(t)
  const postgres = {
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
    MCP_PROXY_DATABASE_URL: engine === 'postgres' ? await (await cluster()).fresh() : '',
  }
  const env = {
    ...(await environment(directory, upstream.url)),
    ...(engine === 'postgres' && postgres),
    MCP_PROXY_WORKERS: String(workers),
    ...settings,
  }
  return workersOf(t, env, upstream)
}

/** Starts one on what an earlier one has left behind. */
export async function workersOf(
  t: Test,
  env: Readonly<Record<string, string>>,
  upstream: TestUpstream,
): Promise<Workers> {
  const process = startProcess(t, env)
  const url = await process.ready
  const { text: ca } = await ask(`${url}/pki/ca.crt`, 'GET', {
    agent: new Agent({ rejectUnauthorized: false }),
  })
  const call: Workers['call'] = (who, method, path, asked = {}) =>
    ask(url + path, method, { agent: agentOf(ca, who), ...asked })
  const admin: Workers['admin'] = (method, path, body) =>
    call(null, method, path, { body, headers: { 'x-admin-secret': ADMIN_SECRET } })
  return {
    ...process,
    url,
    ca,
    upstream,
    env,
    databaseUrl: env.MCP_PROXY_DATABASE_URL || `sqlite:${env.MCP_PROXY_DATA_DIR}/sallyport.db`,
    pids: () => childrenOf(process.child.pid ?? 0),
    lines: () => jsonLines(process.output()),
    call,
    admin,
    enroll: async (name, capabilities) => {
      const { json, text } = await admin('POST', '/v1/admin/agents', { agent_name: name, capabilities })
      if (json?.agent_id === undefined) throw new Error(`enrolling ${name}: ${text}`)
      return { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
    },
  }
}

export function childrenOf(pid: number): readonly number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
    return text
      .split(' ')
      .filter((part) => part.trim() !== '')
      .map(Number)
  } catch {
    return []
  }
}

/** Every line that begins like an object must be one: what is torn throws. */
const jsonLines = (output: string): Json[] =>
  output
    .slice(0, output.lastIndexOf('\n') + 1)
    .split('\n')
    .filter((line) => line.includes('{'))
    .map((line) => JSON.parse(line))

export const isAlive = (pid: number): boolean => {
  try {
    // A child of nobody that waits for it is a zombie, and dead.
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

/** Calls `/health` over new connections until each worker has answered once, and returns what `path` says at each. */
export async function atEachWorker(
  gateway: Workers,
  who: Identity | null,
  method: string,
  path: string,
  asked?: Asked,
): Promise<readonly Answered[]> {
  // Connections go to the workers in turn; a few more, because others connect too.
  const answers: Answered[] = []
  for (let count = 0; count < 3 * gateway.pids().length; count += 1)
    answers.push(await gateway.call(who, method, path, asked))
  return answers
}

/** Every row, in the order of the streams. The chains must verify, and every decision be recomputed. */
export async function wholeLedger(t: Test, url: string): Promise<readonly AuditRow[]> {
  const database = await openDatabase(url)
  const { verdict, authority } = await inspectRows(allRows(database), { authority: true })
  t.match(verdict, { ok: true }, 'the chain verifies')
  t.equal(authority?.disagree, 0, 'every decision is recomputed', { problems: authority?.problems })
  const rows = await listedRows(database)
  await database.close()
  return rows
}

/** Stops it in order and returns every row. */
export async function stopped(t: Test, gateway: Workers): Promise<readonly AuditRow[]> {
  gateway.child.kill('SIGTERM')
  t.match(await gateway.ended, { code: 0, signal: null }, 'it stops in order')
  return wholeLedger(t, gateway.databaseUrl)
}

/** Waits until so many workers serve that are none of `before`, and resolves with how many serve. */
export async function replaced(
  gateway: Workers,
  before: readonly number[],
  workers: number,
): Promise<number> {
  const serving = () =>
    gateway.admin('GET', '/metrics').then(
      ({ text }) => Number(/^sallyport_workers (\d+)$/m.exec(text)?.[1]),
      // It came to one that was being killed.
      () => 0,
    )
  const all = (count: number) => count === workers && !gateway.pids().some((pid) => before.includes(pid))
  return patiently(serving, all)
}

/** As {@link eventually}, for what takes a whole start of a process on a busy machine. */
export async function patiently<T>(ask: () => T | Promise<T>, wanted: (answer: T) => boolean): Promise<T> {
  let answer = await eventually(ask, wanted)
  for (let more = 0; more < 5 && !wanted(answer); more += 1) answer = await eventually(ask, wanted)
  return answer
}
