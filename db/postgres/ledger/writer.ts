import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'
import { type Client, DatabaseError } from 'pg'
import { CommitInDoubt, type SealedRow } from '../../ledger/record/entry.ts'
import { OUTCOME_STATUSES } from '../../ledger/record/outcomes.ts'
import type { LedgerWork, LedgerWriter, UnfinishedDecisions, WorkResult } from '../../ledger/record/writer.ts'
import { messageOf } from '../../support/error-message.ts'
import { timestamp } from '../../support/statement.ts'
import { ledgerClient, withClient } from '../connection.ts'
import { SERVER_CLOCK } from '../server-clock.ts'
import { assertHeld } from '../session.ts'
import {
  BrokenChainError,
  type ChainTip,
  EMPTY_CHAIN,
  type PreparedBatch,
  prepareBatch,
  storeBatch,
} from './batch.ts'
import { storesColumns } from './columns.ts'
import {
  LOCK_HOLDERS,
  STREAM_CLASS,
  streamKey,
  TERMINATE_LOCK_HOLDER,
  TERMINATE_OVERDUE_HOLDERS,
} from './locks.ts'
import { postgresSchemaProblem } from './schema.ts'
import { AbandonedStreams } from './unfinished.ts'

/** The settings that a server must have, or rows it acknowledges may be lost with its power. */
const WANTED: Readonly<Record<string, readonly string[]>> = {
  fsync: ['on'],
  full_page_writes: ['on'],
  synchronous_commit: ['on', 'remote_write', 'remote_apply'],
}

/** Says in one sentence why a commit on this server is not a durable one, or not to be had; null if it is. */
export async function durabilityProblem(client: Client): Promise<string | null> {
  const { rows: standby } = await client.query<{ is: boolean }>('select pg_is_in_recovery() as is')
  // A session that stayed on it would be refused until it is made the first, which may be never.
  if (standby[0]?.is !== false)
    return 'the database is a standby, which takes no rows: the URL must lead to the primary'
  for (const [name, wanted] of Object.entries(WANTED)) {
    const { rows } = await client.query<string[]>({ text: `show ${name}`, rowMode: 'array' })
    const value = rows[0]?.[0] ?? ''
    if (!wanted.includes(value))
      return `the database has ${name} = ${value}: what it acknowledges could be lost. Set it to ${wanted[0]}`
  }
  return null
}

/**
 * The most that a gateway's clock and the server's may differ at its start. Two gateways are then less than
 * twice that apart, which is as long as used proofs are remembered by either. ms.
 */
const MAX_CLOCK_DIFFERENCE_MS = 240_000

/** Says in one sentence that this machine's clock is not the server's; null if it is. */
export async function clockProblem(client: Client, now = Date.now): Promise<string | null> {
  const before = now()
  const { rows } = await client.query<{ at: number }>(`select ${SERVER_CLOCK} as at`)
  const ahead = Math.round((before + now()) / 2 - (rows[0]?.at ?? before))
  if (Math.abs(ahead) <= MAX_CLOCK_DIFFERENCE_MS) return null
  const seconds = Math.round(Math.abs(ahead) / 1_000)
  return `the clock of this machine is ${seconds} s ${ahead > 0 ? 'ahead of' : 'behind'} the database's: set both by a time service, since gateways that share a database must agree on the time`
}

/** The time in which a batch, or a new connection, must be through. Waiting callers are then refused. ms. */
const DEADLINE_MS = 2_000
/** The time that a batch waits for a lock: longer than a frozen process may hold it. ms. */
const LOCK_MS = 1_500
/** The time that a look for open decisions of other writers may take. ms. */
const LOOK_MS = 60_000

/**
 * Opens a stream of this process's own (docs/ledger.md, Streams). Rejects with one sentence if rows could be
 * lost or changed there.
 */
export async function openPostgresWriter(url: string): Promise<LedgerWriter> {
  const writer = new StreamWriter(url, `r${randomBytes(8).toString('hex')}`)
  await writer.open()
  return writer
}

/**
 * The writer of one stream, on a connection of its own. The session holds the stream's lock for as long as it
 * lives: nobody else writes the stream, and the next holder of the lock knows that this session and all that
 * it did are over.
 *
 * State: `#head` is the end of the chain as far as it is known to be durable. `#doubt` is a batch whose
 * commit was sent and never answered: the next connection looks up whether it is stored, before anything else
 * is written.
 */
class StreamWriter implements LedgerWriter {
  readonly stream: string
  readonly #url: string
  readonly #lost = Promise.withResolvers<Error>()
  readonly #abandoned: AbandonedStreams
  #client: Client | null = null
  #connecting: Promise<Client> | null = null
  #head: ChainTip = EMPTY_CHAIN
  #doubt: ChainTip | null = null
  readonly #open = new OpenCalls()
  #closed = false
  #inColumns = false

  constructor(url: string, stream: string) {
    this.#url = url
    this.stream = stream
    this.#abandoned = new AbandonedStreams(stream)
  }

  get head(): SealedRow | null {
    return this.#head.seq === 0 ? null : { stream: this.stream, ...this.#head }
  }

  get lost(): Promise<Error> {
    return this.#lost.promise
  }

  async open(): Promise<void> {
    const client = await this.#session()
    const problem = await clockProblem(client)
    if (problem !== null) throw new Error(problem)
    const row = [this.stream, hostname(), timestamp(Date.now())]
    await client.query('insert into audit_streams (stream, replica, opened_at) values ($1, $2, $3)', row)
  }

  async write(batch: readonly LedgerWork[]): Promise<readonly WorkResult[]> {
    const client = await this.#session()
    const from = performance.now()
    let prepared: PreparedBatch | null = null
    try {
      prepared = await prepareBatch(client, this.stream, this.#head, batch)
      await storeBatch(client, this.stream, prepared, this.#inColumns)
    } catch (error) {
      this.#open.lose(batch)
      if (prepared && error instanceof CommitInDoubt) return this.#resolve(client, prepared, error, from)
      await this.#undo(client, error)
      throw error
    }
    this.#head = prepared.tip
    this.#open.take(batch, prepared.results)
    return prepared.results
  }

  /** Uses a connection of its own: a long look must not keep a batch waiting. */
  async unfinished(): Promise<readonly UnfinishedDecisions[]> {
    // If nothing is written for long, only this notices that the session is gone, and others would close its
    // calls.
    await this.#session()
    return withClient(this.#url, LOOK_MS, (client) => this.#abandoned.look(client, performance.now()))
  }

  async close(): Promise<void> {
    this.#closed = true
    const client = this.#client
    this.#client = null
    // Nobody has to look then for calls that it left open, which reads all of its rows.
    if (this.#open.none) await client?.query(CLOSE, [timestamp(Date.now()), this.stream]).catch(() => {})
    await client?.end().catch(() => {})
  }

  /**
   * Rolls back, and ends who has held the lock of authority too long. A silent connection is dropped, and so
   * rolls back.
   */
  async #undo(client: Client, error: unknown): Promise<void> {
    if (error instanceof BrokenChainError) this.#lose(error)
    if (this.#closed || !(error instanceof DatabaseError)) return this.#drop(client)
    await client.query('rollback').catch(() => this.#drop(client))
    // Only an administrator may be allowed to end another one's session.
    if (error.code === LOCK_NOT_AVAILABLE)
      await client.query(TERMINATE_OVERDUE_HOLDERS, [DEADLINE_MS]).catch(() => {})
  }

  /**
   * Looks up if a batch was stored whose commit was never answered, unless its callers waited for the answer:
   * a silent server will not answer now.
   */
  async #resolve(
    client: Client,
    { tip, results }: PreparedBatch,
    doubt: CommitInDoubt,
    from: number,
  ): Promise<readonly WorkResult[]> {
    this.#doubt = tip
    this.#drop(client)
    if (performance.now() - from > LOCK_MS) throw doubt
    await this.#session().catch((lost: unknown) => {
      throw new CommitInDoubt(messageOf(lost), { cause: lost })
    })
    if (this.#head.hash === tip.hash) return results
    throw new Error('the commit did not reach the database', { cause: doubt })
  }

  /** The session that is open, or a new one: one at a time for all who ask. */
  #session(): Promise<Client> {
    if (this.#client) return Promise.resolve(this.#client)
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = null
    })
    return this.#connecting
  }

  async #connect(): Promise<Client> {
    if (this.#closed) throw new Error('the audit writer is closed')
    const client = ledgerClient(this.#url, DEADLINE_MS, LOCK_MS)
    client.on('error', () => this.#drop(client))
    try {
      await client.connect()
      await this.#take(client)
    } catch (error) {
      client.end().catch(() => {})
      throw error
    }
    this.#client = client
    return client
  }

  /**
   * Takes the stream's lock, and finds the end of its chain. Asks about durability again: it may be another
   * server.
   */
  async #take(client: Client): Promise<void> {
    const problem = (await durabilityProblem(client)) ?? (await postgresSchemaProblem(client))
    if (problem !== null) throw new Error(problem)
    this.#inColumns = await storesColumns(client)
    const lock = [STREAM_CLASS, streamKey(this.stream)]
    // The session before, if the server has not noticed that its connection is gone.
    await client.query(TERMINATE_LOCK_HOLDER, lock)
    await client.query('select pg_advisory_lock($1, $2)', lock)
    await assertHeld(client, LOCK_HOLDERS, lock)
    // Others may have taken it for gone and ended its calls. A later death is looked after again.
    await client.query(REOPEN, [this.stream])
    const { rows } = await client.query<ChainTip>(LAST, [this.stream])
    const found = rows[0] ?? EMPTY_CHAIN
    const known = [this.#head, ...(this.#doubt ? [this.#doubt] : [])]
    if (!known.some(({ seq, hash }) => seq === found.seq && hash === found.hash))
      throw this.#lose(
        new Error(
          `the end of audit stream ${this.stream} is row ${found.seq}, and not row ${this.#head.seq} as it was written: the database was set back, or another writer holds this chain`,
        ),
      )
    this.#head = found
    this.#doubt = null
  }

  #drop(client: Client): void {
    if (this.#client === client) this.#client = null
    client.end().catch(() => {})
  }

  #lose(error: Error): Error {
    this.#closed = true
    this.#lost.resolve(error)
    return error
  }
}

/** The calls of a stream that have a decision and no outcome, as far as its writer knows. */
class OpenCalls {
  readonly #calls = new Set<string>()
  /** True once the fate of a batch, or of an outcome, is not known here. */
  #lost = false

  get none(): boolean {
    return this.#calls.size === 0 && !this.#lost
  }

  take(batch: readonly LedgerWork[], results: readonly WorkResult[]): void {
    for (const [n, { drafts }] of batch.entries()) {
      const isStored = 'sealed' in (results[n] ?? {})
      for (const { request_id: id, status } of drafts) {
        if (id === null) continue
        if (isStored && status === 'allowed' && !this.#lost) this.#calls.add(id)
        if (!OUTCOME_STATUSES.has(status)) continue
        this.#calls.delete(id)
        this.#lost ||= !isStored
      }
    }
  }

  lose(batch: readonly LedgerWork[]): void {
    this.#lost ||= batch.some(({ drafts }) => drafts.length > 0)
    if (this.#lost) this.#calls.clear()
  }
}

const CLOSE =
  'update audit_streams set closed_at = $1 where stream = $2 and recovered = 0 and closed_at is null'

const LAST = 'select seq, row_hash as hash from audit_log where stream = $1 order by seq desc limit 1'

const REOPEN =
  'update audit_streams set closed_at = null, recovered = 0 where stream = $1 and (recovered > 0 or closed_at is not null)'

/** PostgreSQL's appendix A, of a wait for a lock that took too long. */
const LOCK_NOT_AVAILABLE = '55P03'
