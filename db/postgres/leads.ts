import type { Client } from 'pg'
import { streamKey, TERMINATE_LOCK_HOLDER } from './ledger/locks.ts'
import type { PresenceParticipant, PresenceSession } from './presence.ts'

/** The first half of the locks of tasks (db/postgres/ledger/locks.ts has the others). */
const TASK_CLASS = 0x53_41_4c_34
/** The time between two tries. ms. */
const TRY_MS = 800
/**
 * The silence of a leader after which its session is ended; it stops believing earlier (`DOUBT_MS` in
 * presence.ts). With the pause between tries below the promised 5 s. ms.
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

  async beat(client: Client): Promise<void> {
    const at = performance.now()
    const tasks = [...this.#wanted].filter((task) => !this.#held.has(task))
    if (tasks.length === 0 || at - this.#triedAt < TRY_MS) return
    this.#triedAt = at
    const { rows } = await client.query<boolean[]>({
      text: 'select pg_try_advisory_lock($1, key) from unnest($2::int[]) with ordinality as t(key, n) order by n',
      values: [TASK_CLASS, tasks.map(streamKey)],
      rowMode: 'array',
    })
    for (const [n, task] of tasks.entries()) {
      if (rows[n]?.[0] === true) this.#held.add(task)
      else await client.query(END_SILENT, [TASK_CLASS, streamKey(task), SILENT_MS / 1_000])
    }
  }

  lost(): void {
    this.#held.clear()
    this.#triedAt = Number.NEGATIVE_INFINITY
  }
}

// Judged by the server's clock alone. Every process beats, so a session that asks nothing is a frozen one.
const END_SILENT = `${TERMINATE_LOCK_HOLDER}
    and pid in (select pid from pg_stat_activity where state_change < clock_timestamp() - make_interval(secs => $3))`
