import { AggregatorRegistry, Registry } from 'prom-client'
import { lostLinesCounter } from '../telemetry/metrics.ts'
import type { Member } from './member.ts'
import type { Measured } from './messages.ts'

/** How long a worker's metrics are waited for: those of one that hangs are as they were. ms. */
const WAIT_MS = 1_000

/**
 * The metrics of all workers as those of one process. What workers that are gone have counted still counts: a sum that
 * falls would be read as a new start.
 */
export class MetricsOfAll {
  readonly #serving: () => readonly Member[]
  /** The metrics of this process, which writes the log of all. */
  readonly #own = new Registry()
  #gone: Measured = []

  /** `lostLines`: counts the log lines that standard output did not take. */
  constructor(serving: () => readonly Member[], lostLines: () => number) {
    this.#serving = serving
    lostLinesCounter(this.#own, lostLines)
  }

  /** Keeps what a worker that is gone had counted when somebody asked last. */
  async keep({ measured }: Member): Promise<void> {
    const counted = measured.filter(({ type }) => ACCUMULATED.includes(String(type)))
    this.#gone = await AggregatorRegistry.aggregate([this.#gone, counted]).getMetricsAsJSON()
  }

  async text(): Promise<string> {
    const members = this.#serving()
    await Promise.all(members.map(measure))
    const own = await this.#own.getMetricsAsJSON()
    const all = [...members.map(({ measured }) => measured), this.#gone, own]
    return `${await AggregatorRegistry.aggregate(all).metrics()}\n${HEAD}\nsallyport_workers ${members.length}\n`
  }
}

const HEAD = `# HELP sallyport_workers Processes that serve.
# TYPE sallyport_workers gauge`

// prom-client says them as texts, whatever its types say.
const ACCUMULATED: readonly string[] = ['counter', 'histogram']

async function measure(member: Member): Promise<void> {
  const { promise: late, resolve } = Promise.withResolvers<null>()
  const timer = setTimeout(() => resolve(null), WAIT_MS)
  const measured = await Promise.race([member.channel.ask('measure', null).catch(() => null), late])
  clearTimeout(timer)
  if (measured) member.measured = measured
}
