import { Socket } from 'node:net'
import { type Client, Pool, type PoolConfig, TypeOverrides } from 'pg'
import { HostNameCache } from '../host-names/kept-names.ts'
import { driverTls } from './protection.ts'
import { SessionClient, type SessionConfig, type SessionSettings } from './session.ts'

/** The time that a connection may take to open. ms. */
const CONNECT_MS = 2_000
/** The time that a question may take before its caller hears that the database is gone. ms. */
export const QUERY_TIMEOUT_MS = 2_000
/** The time that a server may be late with its own limit. ms. */
const SILENCE_MS = 250
/**
 * The silence of a process in a batch: frozen, it delays others' changes for less than they wait for a lock.
 * ms.
 */
const IDLE_MS = 1_000
/** The silence after which TCP asks whether the server is still there, once a second. ms. */
const PROBE_MS = 5_000
const MAX_READER_CONNECTIONS = 8
/** The time after which a connection that reads nothing is closed: longer than tasks pause. ms. */
const IDLE_READER_MS = 30_000

const INT8 = 20

/** Proven: a pool makes its clients with its own configuration. */
const IN_POOL = { Client: SessionClient as unknown as new () => Client }

/** Opens no connection yet. `onLost` hears of idle connections that break. None of them can write. */
export function readingPool(
  url: string,
  onLost: (error: Error) => void,
  questionMs = QUERY_TIMEOUT_MS,
): Pool {
  const config: PoolConfig & SessionConfig = {
    ...configOf(url, questionMs, { default_transaction_read_only: 'on' }),
    proves: false,
    ...IN_POOL,
    max: MAX_READER_CONNECTIONS,
    idleTimeoutMillis: IDLE_READER_MS,
    verify: refuseStandby,
  }
  const pool = new Pool(config)
  pool.on('error', onLost)
  // The pool hears of its idle connections alone, and an error that nobody hears would end the process. A
  // question on a lost connection tells its caller.
  pool.on('connect', (client) => client.on('error', () => {}))
  return pool
}

/** A standby may be behind, and is not left again if the URL leads to the primary one day. */
const refuseStandby: PoolConfig['verify'] = (client, done) => {
  const question = 'select pg_is_in_recovery() as is'
  client.query<{ is: boolean }>(question, (error: Error | null, found) => {
    if (error) return done(error)
    return done(found.rows[0]?.is === false ? undefined : new Error('it is a standby'))
  })
}

/**
 * One connection, not yet open, that may write; the caller listens to `error`, and ends it. `questionMs`: per
 * statement; 0 for no end.
 */
export const writingClient = (url: string, questionMs: number): Client =>
  new SessionClient(configOf(url, questionMs))

/**
 * Like {@link writingClient}, for the ledger: pipelined, waits `lockMs` for a lock, and plans statements each
 * time: a plan for an empty table would read all of it ever after.
 */
export const ledgerClient = (url: string, questionMs: number, lockMs: number): Client => {
  const settings = {
    lock_timeout: String(lockMs),
    idle_in_transaction_session_timeout: String(IDLE_MS),
    plan_cache_mode: 'force_custom_plan',
  }
  return new SessionClient(pipelined(configOf(url, questionMs, settings)))
}

const pipelined = (config: SessionConfig): SessionConfig & { readonly pipeline: true } => ({
  ...config,
  pipeline: true,
})

/** The time that a question about many rows may take. ms. */
const WALK_MS = 60_000
/** Memory in which rows are put in order. */
const WALK_MEMORY = '32MB'

/**
 * One connection, not yet open, for long reads on a thread. Pipelined. Does NOT look if the server is a
 * standby.
 */
export const walkingClient = (url: string): Client => {
  const settings = { default_transaction_read_only: 'on', work_mem: WALK_MEMORY, jit: 'off' }
  return new SessionClient(pipelined(configOf(url, WALK_MS, settings)))
}

/** Does work on a connection that ends with it. `questionMs`: as above. */
export async function withClient<Made>(
  url: string,
  questionMs: number,
  work: (client: Client) => Promise<Made>,
): Promise<Made> {
  const client = writingClient(url, questionMs)
  client.on('error', () => {})
  try {
    await client.connect()
    return await work(client)
  } finally {
    await client.end()
  }
}

/** One connection that may write, and take its time. */
export const migratingConfig = (url: string): PoolConfig & SessionConfig => ({
  ...configOf(url, 0),
  ...IN_POOL,
  max: 1,
})

function configOf(url: string, questionMs: number, more: SessionSettings = {}): SessionConfig {
  const settings = {
    statement_timeout: String(questionMs),
    idle_in_transaction_session_timeout: String(questionMs),
    ...more,
  }
  return {
    ...driverTls(url),
    application_name: 'sallyport',
    connectionTimeoutMillis: CONNECT_MS,
    // Longer than the database's own limit: this one is for a server that says nothing at all.
    ...(questionMs > 0 && { query_timeout: questionMs + SILENCE_MS }),
    keepAlive: true,
    stream: namedSocket,
    // A connection that nobody uses is still one to whatever translates addresses on the way.
    keepAliveInitialDelayMillis: PROBE_MS,
    types: numbers(),
    settings,
    settleMs: CONNECT_MS,
    proves: true,
  }
}

const names = new HostNameCache()

/** Looks up the server's name apart from those of other connections (docs/threats.md#h2). */
function namedSocket(): Socket {
  const socket = new Socket()
  const connect = socket.connect.bind(socket)
  return Object.assign(socket, {
    connect: (port: number | string, host?: string) =>
      // A text is the path of a socket on this machine.
      typeof port === 'string'
        ? connect(port)
        : connect({ port, host: host ?? 'localhost', lookup: names.lookup }),
  })
}

/** Eight-byte integers as numbers: counts, and places in a chain, which no ledger brings beyond 2^53. */
function numbers(): TypeOverrides {
  const types = new TypeOverrides()
  types.setTypeParser(INT8, Number)
  return types
}
