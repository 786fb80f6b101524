import { setTimeout as wait } from 'node:timers/promises'
import type { Database } from '../../db/database.ts'
import { MAX_SPEND_DAYS, type SpendCount } from '../../db/ledger/counts/spend-counts.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { timestamp } from '../../db/support/statement.ts'
import type { RoundsTask } from './rounds.ts'

/** The rows that are counted in one transaction: it holds up the calls after it for some ms at most. */
const PORTION = 1_024
/** The pause between two portions of a long way to catch up: calls come first. ms. */
const PAUSE_MS = 20
const EVERY_MS = 2_000
const NAME = 'count-rows'

interface RowCountDependencies {
  readonly database: Pick<Database, 'rowCounts' | 'leads'>
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
  /** Told of spends once they are stored, each once. */
  readonly onSpends?: (spends: readonly SpendCount[]) => void
}

const DAY_MS = 86_400_000

/**
 * Keeps the counts of the ledger's rows and their spends up to date, in the process that leads
 * (docs/ledger.md#counts): both and their place are stored in one transaction. Deletes spends that are too
 * old.
 */
export function countRows({ database, ledger, clock, onSpends }: RowCountDependencies): RoundsTask {
  const { rowCounts, leads } = database
  let stopped = false
  let running: Promise<void> | null = null
  /** The place up to which this process has counted; null: another one may have. */
  let place: number | null = null
  // The first question begins to want the lead: by the first round it is known.
  leads(NAME)

  async function portion(): Promise<boolean> {
    const from = place ?? (await rowCounts.counted())
    place = from
    const counted = await rowCounts.portion(from, PORTION)
    if (counted.place === from) return false
    const statements = rowCounts.keep(from, counted)
    await ledger.commit({ statements, entries: [], lazy: true })
    ;({ place } = counted)
    onSpends?.(counted.spends)
    return counted.counts.reduce((sum, { rows }) => sum + rows, 0) === PORTION
  }

  /** The day before which this process has deleted all spends. */
  let keptSince = ''

  async function forget(): Promise<void> {
    const since = timestamp(clock() - (MAX_SPEND_DAYS - 1) * DAY_MS).slice(0, 10)
    while (keptSince !== since && !stopped && leads(NAME)) {
      const statements = await rowCounts.removeSpends(since)
      if (statements === null) keptSince = since
      else await ledger.commit({ statements, entries: [], lazy: true })
    }
  }

  async function all(): Promise<void> {
    try {
      while (!stopped && leads(NAME) && (await portion())) await wait(PAUSE_MS)
      await forget()
    } catch (error) {
      place = null
      // Another process has counted them: the next round goes on from there.
      if (!(error instanceof LedgerError) || !['conflict', 'closed'].includes(error.code)) throw error
    }
  }

  return {
    name: NAME,
    everyMs: EVERY_MS,
    run: () => {
      running ??= all().finally(() => {
        running = null
      })
      return running
    },
    stop: async () => {
      stopped = true
      // The caller of `run` gets the error of a round.
      await Promise.allSettled([running])
    },
  }
}
