import { createHmac } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { knownStates, type ProviderState, rememberStates } from '../../../db/provider-states.ts'
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import type { CallCommitments } from '../../../plugins/facts.ts'

/** The principal that answers state ids to. */
export interface StatedIdOwner {
  /** The name that the ledger knows it by. */
  readonly ref: string
  readonly commitments: Pick<CallCommitments, 'derived'>
}

/** Days. OpenAI keeps a response for 30, and ours are to be known for longer; each statement begins them again. */
const MAX_AGE_DAYS = 60
const DAY_MS = 86_400_000
/** The ids of this process that are remembered here too: their rows may still be under way. */
const MAX_RECENT = 20_000
/** The ids whose rows wait for a ledger that fails. Of more, the oldest are not written. */
const MAX_OWED = 20_000
/** The ids of one unit of the ledger. */
const MAX_AT_ONCE = 1_000
/** The time for which ids are gathered before they are written. ms. */
const GATHER_MS = 20
/** The pauses after which an id is asked for again: another gateway's row may be under way. ms. */
const PAUSES_MS = [50, 100, 250] as const
/** Half of a SHA-256 in hex: nobody finds another id of the same one. */
const DIGITS = 32

interface StateMemoryDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'submit'>
  readonly clock: () => number
}

/**
 * The ids that answers have stated, by principal and provider (docs/protocol.md#state). State: `#owed` holds what is not
 * durable yet, and a crash loses it: those ids are refused then, as if they were another's.
 */
export class StateMemory {
  readonly #database: Database
  readonly #ledger: Pick<Ledger, 'submit'>
  readonly #clock: () => number
  /** When they expire. ms since the epoch. */
  readonly #recent = boundedCache<number>(MAX_RECENT)
  readonly #owed = new Map<string, ProviderState>()
  #timer: NodeJS.Timeout | null = null
  #isWriting = false
  #written: Promise<void> = Promise.resolve()
  /** True: the ledger took the last ones not, so that the task alone tries again. */
  #isFailing = false

  constructor({ database, ledger, clock }: StateMemoryDependencies) {
    this.#database = database
    this.#ledger = ledger
    this.#clock = clock
  }

  /** The pauses after which an id is asked for again that is not known. ms. */
  get pausesMs(): readonly number[] {
    return this.#database.engine === 'postgres' ? PAUSES_MS : []
  }

  /** Remembers ids at once, and writes them a moment later. */
  note({ ref, commitments }: StatedIdOwner, provider: string, ids: readonly string[]): void {
    if (ids.length === 0) return
    const digestOf = digester(commitments, provider)
    const expiresAt = this.#clock() + MAX_AGE_DAYS * DAY_MS
    for (const id of ids) {
      const digest = digestOf(id)
      const key = `${ref} ${digest}`
      // A stream states the same id in several events, and a conversation in each answer.
      if (expiresAt - (this.#recent.get(key) ?? 0) < DAY_MS) continue
      this.#recent.set(key, expiresAt)
      if (this.#owed.size === MAX_OWED) this.#forgetOldest()
      this.#owed.set(key, { ref, digest, expiresAt })
    }
    this.#gather()
  }

  /** Finds the ids that answers of a provider have stated to a principal, of those that are asked about. */
  async known(
    { ref, commitments }: StatedIdOwner,
    provider: string,
    ids: readonly string[],
  ): Promise<ReadonlySet<string>> {
    const digestOf = digester(commitments, provider)
    const known = new Set<string>()
    const left = new Map<string, string>()
    for (const id of ids) {
      const digest = digestOf(id)
      if (this.#recent.has(`${ref} ${digest}`)) known.add(id)
      else left.set(digest, id)
    }
    if (left.size === 0) return known
    const digests = await knownStates(this.#database, ref, [...left.keys()], this.#clock())
    for (const digest of digests) known.add(left.get(digest) ?? '')
    return known
  }

  /** Writes all that is not durable yet, or as much as the ledger takes. */
  async flush(): Promise<void> {
    for (let left = Number.POSITIVE_INFINITY; this.#owed.size > 0 && this.#owed.size < left; ) {
      left = this.#owed.size
      this.write()
      await this.#written
    }
  }

  /** Begins to write what is not durable yet, some at once. What the ledger does not take is written later. */
  write(): void {
    if (this.#timer) clearTimeout(this.#timer)
    this.#timer = null
    const states = [...this.#owed.values().take(MAX_AT_ONCE)]
    if (states.length === 0 || this.#isWriting) return
    this.#isWriting = true
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#written = promise
    const unit = { statements: rememberStates(this.#database, states), entries: [], lazy: true }
    this.#ledger.submit(unit, (error) => {
      this.#isWriting = false
      this.#isFailing = error !== null
      resolve()
      if (error) return
      for (const state of states) {
        const key = `${state.ref} ${state.digest}`
        if (this.#owed.get(key) === state) this.#owed.delete(key)
      }
      if (this.#owed.size > 0) this.#gather()
    })
  }

  #gather(): void {
    if (this.#isFailing || this.#isWriting) return
    this.#timer ??= setTimeout(() => this.write(), GATHER_MS).unref()
  }

  #forgetOldest(): void {
    const [oldest] = this.#owed.keys()
    if (oldest === undefined) return
    this.#owed.delete(oldest)
    this.#recent.delete(oldest)
  }
}

/** Makes the digests of ids by the principal's own key: an id of one provider says nothing of another's. */
function digester(commitments: StatedIdOwner['commitments'], provider: string): (id: string) => string {
  const key = commitments.derived('state at providers')
  return (id) => createHmac('sha256', key).update(`${provider}\0${id}`).digest('hex').slice(0, DIGITS)
}
