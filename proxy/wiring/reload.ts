import type { Logger } from 'pino'
import { messageOf } from '../../db/support/error-message.ts'
import type { JsonObject } from '../../db/support/json.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import { type Configuration, loadedDetail } from './configuration.ts'

/** Loads the configuration again. Resolves with true if it is in force now. Never rejects. */
export type ReloadConfiguration = () => Promise<boolean>

/**
 * Writes an audit row about the service itself. `digest`: of the configuration that it is about; absent: in
 * force.
 */
export type WriteServiceRow = (action: string, detail: JsonObject, digest?: string) => Promise<unknown>

interface ReloadDependencies {
  readonly load: () => Promise<Configuration>
  readonly use: (configuration: Configuration) => void
  readonly note: WriteServiceRow
  readonly log: Logger
  readonly metrics: GatewayMetrics
  readonly renew: () => Promise<void>
  readonly clock: () => number
  /** Says of the last load why it was rejected, for operators; null if it was not. */
  readonly rejected: (rejection: ConfigurationRejection | null) => void
}

export interface ConfigurationRejection {
  /** ms since the epoch. */
  readonly at: number
  readonly message: string
}

/**
 * Makes a {@link ReloadConfiguration}. It reads the operators' files again and swaps them in whole; requests
 * under way finish on the old ones, as long as the new ones would let their callers in. A bad file leaves
 * everything as it was and is logged, counted and recorded (docs/threats.md#f-31). Calls that overlap run one
 * after another.
 */
export function reloader(sources: ReloadDependencies): ReloadConfiguration {
  let last: Promise<unknown> = Promise.resolve()
  return () => {
    const next = last.then(() => reload(sources))
    last = next
    return next
  }
}

async function reload(sources: ReloadDependencies): Promise<boolean> {
  const { load, use, note, log, metrics, renew, clock, rejected } = sources
  let loaded: Configuration | null = null
  try {
    const configuration = await load()
    loaded = configuration
    // First, because it may fail: a configuration that is reported as rejected must not be in force.
    await renew()
    // Recorded before it judges anything: no row, no work.
    await note('config.loaded', loadedDetail(configuration), configuration.digest)
    use(configuration)
    loaded = null
    rejected(null)
    metrics.reloads.inc({ result: 'loaded' })
    log.info({ digest: configuration.digest }, 'configuration loaded')
    return true
  } catch (error) {
    await loaded?.close()
    metrics.reloads.inc({ result: 'rejected' })
    log.error({ err: error }, 'configuration rejected; the previous one stays in force')
    const message = messageOf(error).slice(0, 1000)
    rejected({ at: clock(), message })
    await note('config.rejected', { message }).catch((cause: unknown) =>
      log.error({ err: cause }, 'the rejected configuration could not be recorded'),
    )
    return false
  }
}
