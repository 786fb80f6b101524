import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { hasOperators } from '../../../db/operators/owners.ts'
import { readSetting, writeSetting } from '../../../db/settings.ts'
import { timestamp } from '../../../db/support/statement.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { RecognisedSenders } from '../../../plugins/secrets/recognised-senders.ts'

/** The time in which further uses are only counted. ms. */
const MINUTE_MS = 60_000

interface SecretUseDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'submit'>
  readonly log: Logger
  readonly metrics: { readonly secretUses: { readonly inc: () => void } }
  readonly clock: () => number
}

/**
 * Counts the doors that the operator secret opens. If there are operators, each minute of its use is a
 * warning in the log, and the last one is kept.
 */
export class SecretUse {
  readonly #sources: SecretUseDependencies
  /** ms since the epoch. */
  #noted = Number.NEGATIVE_INFINITY

  constructor(sources: SecretUseDependencies) {
    this.#sources = sources
  }

  /** Waits for nobody, and refuses nobody. */
  readonly note = (arrival: Arrival): void => {
    const { metrics, clock, log } = this.#sources
    metrics.secretUses.inc()
    const at = clock()
    if (Math.abs(at - this.#noted) < MINUTE_MS) return
    this.#noted = at
    this.#keep(arrival, at).catch((error: unknown) =>
      log.warn({ err: error }, 'the use of the operator secret could not be recorded'),
    )
  }

  async #keep({ id, remoteAddress }: Arrival, at: number): Promise<void> {
    const { database, ledger, log } = this.#sources
    if (!(await hasOperators(database))) return
    log.warn(
      { reqId: id, remote_address: remoteAddress },
      'the operator secret was used, which names nobody: operators should use their certificates',
    )
    const used = {
      ...writeSetting(database, 'admin_secret_used_at', timestamp(at), at),
      beside: 'upkeep' as const,
    }
    ledger.submit({ statements: [used], entries: [], lazy: true }, (error) => {
      if (error) log.warn({ err: error }, 'the use of the operator secret could not be recorded')
    })
  }
}

interface RecognisedSenderDependencies
  extends Pick<SecretUseDependencies, 'database' | 'ledger' | 'log' | 'clock'> {
  readonly subjectKeys: Pick<SubjectKeys, 'derived'>
}

/**
 * Makes the list of senders that the operator secret came from, as the database keeps it. It is not loaded.
 */
export function recognisedSenders(sources: RecognisedSenderDependencies): RecognisedSenders {
  const { database, ledger, log, clock, subjectKeys } = sources
  const read = () => readSetting(database, 'admin_secret_senders')
  const write = (text: string): void => {
    const kept = {
      ...writeSetting(database, 'admin_secret_senders', text, clock()),
      beside: 'upkeep' as const,
    }
    ledger.submit({ statements: [kept], entries: [], lazy: true }, (error) => {
      if (error) log.warn({ err: error }, 'the senders of the operator secret could not be recorded')
    })
  }
  return new RecognisedSenders(subjectKeys.derived('senders of the operator secret'), { read, write }, clock)
}
