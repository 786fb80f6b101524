import { callbackify } from 'node:util'
import { Client, type ClientConfig } from 'pg'
import { DatabaseUnavailable } from '../support/unavailable.ts'

/** The settings of a session, by their names. */
export type SessionSettings = Readonly<Record<string, string>>

export interface SessionConfig extends ClientConfig {
  readonly settings: SessionSettings
  /** The time that the beginning of a session may take, once it is connected. ms. */
  readonly settleMs: number
  /** True: finds out anew that the session is one. False: once for each URL will do. */
  readonly proves: boolean
}

const NO_SESSION =
  'MCP_PROXY_DATABASE_URL leads to a connection pooler that shares sessions between transactions, on which no lock and no setting holds: name the direct address of the server instead, or that of a pool in session mode'

/** The URLs that have led to sessions. */
const proven = new Set<string>()

/**
 * A connection that is a session, with settings of its own. Settings are no part of its start, which poolers
 * refuse. Connecting rejects with one sentence if a pooler shares the session with others: it is asked nothing
 * then that stays behind there.
 */
export class SessionClient extends Client {
  readonly #config: SessionConfig

  constructor(config: SessionConfig) {
    super(config)
    this.#config = config
  }

  override connect(): Promise<Client>
  override connect(callback: (error: Error) => void): void
  override connect(callback?: (error: Error) => void): unknown {
    return callback ? callbackify(() => this.#connect())(callback) : this.#connect()
  }

  async #connect(): Promise<Client> {
    // Whoever made it may listen only from now on. A question tells its asker.
    const heard = (): void => {}
    this.on('error', heard)
    await super.connect()
    try {
      await this.#settle()
    } catch (error) {
      // No pool does.
      this.end().catch(() => {})
      throw error
    }
    this.off('error', heard)
    return this
  }

  async #settle(): Promise<void> {
    const { settings, settleMs, proves, connectionString = '' } = this.#config
    const names = Object.keys(settings)
    const set = `array[${names.map((name) => `set_config('${name}', '${settings[name]}', false)`).join(', ')}]`
    const is = `array[${names.map((name) => `current_setting('${name}')`).join(', ')}]`
    const ask = async (text: string): Promise<readonly string[] | null> => {
      const query = { text: `select ${text} as found`, query_timeout: settleMs }
      return (await this.query<{ found: readonly string[] | null }>(query)).rows[0]?.found ?? null
    }
    // A server answers by the process that its greeting named, a pooler by another one: set nothing there yet.
    if ((await ask(`case pg_backend_pid() when ${processOf(this)} then ${set} end`)) !== null) return
    if (proves || !proven.has(connectionString)) await assertUnshared(this, this.#config)
    const wanted = await ask(set)
    if ((await ask(is))?.join('\n') !== wanted?.join('\n')) throw new DatabaseUnavailable(NO_SESSION)
    proven.add(connectionString)
  }
}

/** The process that the server, or a pooler, named in its greeting. */
const processOf = (client: Client): number => Number((client as Client & { processID?: number }).processID)

/** The order in which two connections are asked. No server that takes turns keeps both apart by chance. */
const TURNS = [0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0] as const

/** Rejects unless a connection, and one more, have a process of the server each, from question to question. */
async function assertUnshared(one: Client, config: SessionConfig): Promise<void> {
  const other = new Client(config)
  other.on('error', () => {})
  try {
    await other.connect()
    const processes = [new Set<number>(), new Set<number>()] as const
    for (const turn of TURNS) {
      const query = { text: 'select pg_backend_pid() as pid', query_timeout: config.settleMs }
      const { rows } = await (turn === 0 ? one : other).query<{ pid: number }>(query)
      processes[turn].add(rows[0]?.pid ?? 0)
    }
    const [ones, others] = processes
    if (ones.size !== 1 || others.size !== 1 || !ones.isDisjointFrom(others))
      throw new DatabaseUnavailable(NO_SESSION)
  } finally {
    other.end().catch(() => {})
  }
}

/** Rejects if a lock that was taken is not this session's, by its two halves. */
export async function assertHeld(client: Client, holders: string, lock: readonly number[]): Promise<void> {
  const { rows } = await client.query(`select ${holders} and pid = pg_backend_pid()`, [...lock])
  if (rows.length === 0) throw new DatabaseUnavailable(NO_SESSION)
}
