import type { Logger } from 'pino'
import { messageOf } from '../../db/support/error-message.ts'
import type { JsonObject } from '../../db/support/json.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type Configuration, loadedDetail } from './configuration.ts'

/** Loads the configuration anew. Resolves with true where it is in force now. Never rejects. */
export type Reload = () => Promise<boolean>

/** Writes an audit row about the service itself. `digest`: of the configuration that it is about; absent: in force. */
export type Note = (action: string, detail: JsonObject, digest?: string) => Promise<unknown>

interface Sources {
  readonly load: () => Promise<Configuration>
  readonly use: (configuration: Configuration) => void
  readonly note: Note
  readonly log: Logger
  readonly metrics: Metrics
  readonly renew: () => Promise<void>
}

/** A reload step by step, for workers that do each step together. One reload at a time. */
export interface ReloadSteps {
  /** Reads and checks everything. Returns the digest of what may come into force. */
  readonly load: () => Promise<string>
  /** Writes the row, before anything is judged by it: no row, no work. */
  readonly record: () => Promise<unknown>
  /** Swaps in what was loaded. `reports`: whether this process logs and counts it. */
  readonly swap: (reports: boolean) => void
  /** Leaves all as it was. `records`: whether this process writes the row. Never rejects. */
  readonly reject: (
    error: unknown,
    share: { readonly records: boolean; readonly reports: boolean },
  ) => Promise<void>
}

/**
 * Makes a {@link Reload}. It reads the operators' files anew and swaps them in whole; requests under way
 * finish on the old ones, as long as the new ones would let their callers in. A bad file leaves everything as it was and is logged, counted and recorded
 * (docs/threats.md#f-31). Calls that overlap run one after another.
 */
export function reloader(steps: ReloadSteps): Reload {
  let last: Promise<unknown> = Promise.resolve()
  return () => {
    const next = last.then(() => reload(steps))
    last = next
    return next
  }
}

async function reload({ load, record, swap, reject }: ReloadSteps): Promise<boolean> {
  try {
    await load()
    await record()
    swap(true)
    return true
  } catch (error) {
    await reject(error, { records: true, reports: true })
    return false
  }
}

export function reloadSteps({ load, use, note, log, metrics, renew }: Sources): ReloadSteps {
  let loaded: Configuration | null = null
  const taken = (): Configuration => {
    if (!loaded) throw new Error('nothing was loaded')
    return loaded
  }
  return {
    load: async () => {
      loaded = await load()
      // First, because it may fail: a configuration that is reported as rejected must not be in force.
      await renew()
      return loaded.digest
    },
    record: () => note('config.loaded', loadedDetail(taken()), taken().digest),
    swap: (reports) => {
      const configuration = taken()
      use(configuration)
      loaded = null
      if (!reports) return
      metrics.reloads.inc({ result: 'loaded' })
      log.info({ digest: configuration.digest }, 'configuration loaded')
    },
    reject: async (error, { records, reports }) => {
      await loaded?.close()
      loaded = null
      if (reports) {
        metrics.reloads.inc({ result: 'rejected' })
        log.error({ err: error }, 'configuration rejected; the one before stays in force')
      }
      if (!records) return
      const message = messageOf(error)
      await note('config.rejected', { message: message.slice(0, 1000) }).catch((cause: unknown) =>
        log.error({ err: cause }, 'the rejected configuration could not be recorded'),
      )
    },
  }
}
