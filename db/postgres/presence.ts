import { setTimeout as sleep } from 'node:timers/promises'
import type { Client } from 'pg'
import { writingClient } from './connection.ts'
import { streamKey, TERMINATE_LOCK_HOLDER } from './ledger/locks.ts'

/** The first half of the locks of tasks (db/postgres/ledger/locks.ts has the others). */
const TASK_CLASS = 0x53_41_4c_34
/** The least time between two tries: every second beat. ms. */
const TRY_MS = 700
/**
 * The silence of a leader after which its session is ended; it stops believing earlier ({@link DOUBT_MS}).
 * With the pause between tries below the promised 5 s. ms.
 */
const SILENT_MS = 2_500

/**
 * The tasks that this process does for all who share the database, each by a lock of its presence session. A
 * dead leader loses it with its connection, a frozen one when another process wants it.
 */
export class TaskLeadership implements PresenceParticipant {
  readonly #presence: () => PresenceSession
  readonly #wanted = new Set<string>()
  readonly #held = new Set<string>()
  /** The tasks that the beat under way tries to take. */
  #asked: readonly string[] = []
  #triedAt = Number.NEGATIVE_INFINITY

  constructor(presence: () => PresenceSession) {
    this.#presence = presence
  }

  /** True if this process leads a task now. The first question for a task begins to want it. */
  holds(task: string): boolean {
    if (!this.#wanted.has(task)) {
      this.#wanted.add(task)
      this.#triedAt = Number.NEGATIVE_INFINITY
      this.#presence().start()
    }
    return this.#held.has(task) && this.#presence().stands
  }

  asks(): readonly string[] {
    const at = performance.now()
    this.#asked = []
    if (at - this.#triedAt < TRY_MS) return []
    const tasks = [...this.#wanted].filter((task) => !this.#held.has(task))
    if (tasks.length === 0) return []
    this.#triedAt = at
    this.#asked = tasks
    return [
      `array(select pg_try_advisory_lock(${TASK_CLASS}, key)
        from unnest('{${tasks.map(streamKey).join()}}'::int[]) with ordinality as t(key, n) order by n) as taken`,
      SOME_SILENT,
    ]
  }

  async heard({ taken = [], silent }: BeatAnswer, client: Client): Promise<void> {
    const left = this.#asked.filter((_, n) => taken[n] !== true)
    for (const task of this.#asked) if (!left.includes(task)) this.#held.add(task)
    if (silent !== true) return
    for (const task of left) await client.query(END_SILENT, [TASK_CLASS, streamKey(task)])
    this.#triedAt = Number.NEGATIVE_INFINITY
  }

  lost(): void {
    this.#held.clear()
    this.#triedAt = Number.NEGATIVE_INFINITY
  }
}

export const PRESENCE_APPLICATION_NAME = 'sallyport presence'

// Judged by the server's clock alone. Every process beats, so a session that asks nothing is a frozen one.
const SILENT = `from pg_stat_activity where application_name = '${PRESENCE_APPLICATION_NAME}'
  and datname = current_database() and state_change < clock_timestamp() - interval '${SILENT_MS} ms'`

const SOME_SILENT = `exists (select ${SILENT}) as silent`

const END_SILENT = `${TERMINATE_LOCK_HOLDER} and pid in (select pid ${SILENT})`

/** The answer to a beat: a column for each expression that was asked. */
export interface BeatAnswer {
  readonly generation?: number
  readonly taken?: readonly boolean[]
  readonly silent?: boolean
  readonly clock?: number
}

/**
 * A user of the session by which a process is present. `asks`: expressions that the next beat asks, each with
 * a name, all in one statement. Any rejection ends the session.
 */
export interface PresenceParticipant {
  opened?(client: Client): Promise<void>
  asks?(): readonly string[]
  heard?(answer: BeatAnswer, client: Client): void | Promise<void>
  lost?(): void
}

/** The time between two beats. ms. */
const BEAT_MS = 400
/** The time that a beat may take before the session is given up: longer than `DOUBT_MS`. ms. */
const ANSWER_MS = 1_500
/** The age of the last answered beat from which on the session is in doubt. ms. */
const DOUBT_MS = 1_000
/** The random pause before a new session, doubled after each failure. ms. */
const RETRY_MS = 100
const RETRY_MAX_MS = 1_000

/**
 * The session by which a process is present among those that share a database; reopened until {@link close}.
 * A beat shows that it stands: a frozen server ends no session that is only listened to.
 */
export class PresenceSession {
  readonly #url: string
  readonly #parts: readonly PresenceParticipant[]
  readonly #closing = new AbortController()
  #client: Client | null = null
  /** When the last answered beat began, by both clocks: one stands still while a machine sleeps. ms. */
  #provenAt = Number.NEGATIVE_INFINITY
  #provenWall = Number.NEGATIVE_INFINITY
  #since = 0
  #running: Promise<void> | null = null
  #line: Promise<unknown> = Promise.resolve()

  constructor(url: string, parts: readonly PresenceParticipant[]) {
    this.#url = url
    this.#parts = parts
  }

  start(): void {
    if (!this.#closing.signal.aborted) this.#running ??= this.#run()
  }

  /** True if the session stands, as far as a process can know. */
  get stands(): boolean {
    return performance.now() - this.#provenAt < DOUBT_MS && Date.now() - this.#provenWall < DOUBT_MS
  }

  /** When the present session began. ms of `performance.now()`. */
  get since(): number {
    return this.#since
  }

  /** Asks the session, which may be in doubt, after earlier questions. Rejects if there is none. */
  ask<Answer>(work: (client: Client) => Promise<Answer>): Promise<Answer> {
    const asked = this.#client
    const answer = this.#line.then(() => {
      if (asked === null || asked !== this.#client) throw new Error('there is no session')
      return work(asked)
    })
    this.#line = answer.catch(() => {})
    return answer
  }

  async close(): Promise<void> {
    this.#closing.abort()
    await this.#client?.end().catch(() => {})
    await this.#running
  }

  async #run(): Promise<void> {
    let failures = 0
    while (!this.#closing.signal.aborted) {
      const stood = await this.#session()
      failures = stood ? 0 : failures + 1
      await this.#pause(Math.random() * Math.min(RETRY_MAX_MS, RETRY_MS * 2 ** failures))
    }
  }

  /** One session, to its end. Returns whether it ever stood. */
  async #session(): Promise<boolean> {
    const client = writingClient(this.#url, ANSWER_MS)
    client.on('error', () => this.#drop(client))
    client.on('end', () => this.#drop(client))
    let stood = false
    try {
      await client.connect()
      await client.query(`set application_name = '${PRESENCE_APPLICATION_NAME}'`)
      for (const part of this.#parts) await part.opened?.(client)
      this.#client = client
      this.#since = performance.now()
      while (!this.#closing.signal.aborted) {
        await this.ask((open) => this.#beat(open))
        stood = true
        await this.#pause(BEAT_MS)
      }
    } catch {
      // In doubt until there is another one: `stands` says so.
    }
    this.#drop(client)
    return stood
  }

  async #beat(client: Client): Promise<void> {
    const [at, wall] = [performance.now(), Date.now()]
    const asked = this.#parts.flatMap((part) => part.asks?.() ?? [])
    const { rows } = await client.query<BeatAnswer>(`select ${asked.join(', ')}`)
    for (const part of this.#parts) await part.heard?.(rows[0] ?? {}, client)
    if (this.#client !== client) throw new Error('the session is over')
    this.#provenAt = at
    this.#provenWall = wall
  }

  #drop(client: Client): void {
    client.end().catch(() => {})
    if (this.#client !== client) return
    this.#client = null
    this.#provenAt = Number.NEGATIVE_INFINITY
    for (const part of this.#parts) part.lost?.()
  }

  async #pause(ms: number): Promise<void> {
    const { signal } = this.#closing
    await sleep(ms, undefined, { ref: false, signal }).catch(() => {})
  }
}
