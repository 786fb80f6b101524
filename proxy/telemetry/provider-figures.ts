import { Counter, Histogram, type HistogramConfiguration, type Registry } from 'prom-client'
import { STATUS_CODES } from '../../db/support/node-http.ts'

/** The parts of an LLM call that its provider took. */
export interface UpstreamTiming {
  /** From the request until the head of the answer that was passed on. ms. */
  readonly firstByteMs: number
  /** All the time that the call waited for providers. ms. */
  readonly upstreamMs: number
}

/** One provider that a call asked, or passed over, as its outcome row says it. */
export interface AttemptFigures {
  readonly provider: string
  /** Null: no answer came. */
  readonly status?: number | null
  /** Absent: its answer was passed on. */
  readonly reason?: string
  /** Absent: it was asked. */
  readonly skipped?: string
}

/** An LLM call that a provider was asked for, when it has ended. */
export interface LlmCallFigures {
  /** The provider whose answer, or failure, its caller got. */
  readonly provider: string
  readonly attempts: readonly AttemptFigures[]
  /** True: it failed, or was broken off by the provider. */
  readonly failed: boolean
  /** The reason of a failure that came to light after the answer had begun. */
  readonly reason?: string | undefined
  /** From its arrival to the end of its answer. ms. */
  readonly ms: number
  readonly timing?: UpstreamTiming | undefined
  readonly tokens: { readonly input: number; readonly output: number }
  /** The instant of its end. ms since the epoch. */
  readonly at: number
}

/** The calls of one provider in a span of time. */
export interface ProviderSpan {
  readonly calls: number
  readonly errors: number
  readonly tokens: { readonly input: number; readonly output: number }
  /** ms, at most a quarter too much; null: no call. */
  readonly p50Ms: number | null
  readonly p99Ms: number | null
  readonly firstByteP50Ms: number | null
  readonly firstByteP99Ms: number | null
}

/** The state of one provider, by the calls of this process. */
export interface ProviderStanding {
  /** The first good answer since the last failure. ms since the epoch; null: none, or it fails. */
  readonly answeringSince: number | null
  readonly failingSince: number | null
  /** The reason of the last failure, if it fails. */
  readonly problem: string | null
  readonly hour: ProviderSpan
  readonly day: ProviderSpan
}

/**
 * Counts what providers did, for `/metrics` and, in bounded memory, for the last hour and day. Metrics are
 * made when they are read: a call adds to numbers alone.
 */
export class ProviderFigures {
  readonly #records = new Map<string, ProviderRecord>()
  readonly #own = new DoublingHistogram()

  constructor(registers: Registry[]) {
    const records = this.#records
    new Counter({
      name: 'sallyport_llm_provider_answers_total',
      help: 'Requests to providers, by the status of the answer or the reason why there is none.',
      labelNames: ['provider', 'status'],
      registers,
      collect() {
        this.reset()
        for (const [provider, { answers }] of records)
          for (const [status, count] of answers) this.inc({ provider, status }, count)
      },
    })
    new Counter({
      name: 'sallyport_provider_attempts_total',
      help: 'Requests to providers by what came of them, and calls that passed one over (skipped).',
      labelNames: ['provider', 'result'],
      registers,
      collect() {
        this.reset()
        for (const [provider, { results }] of records)
          for (const [result, count] of results) this.inc({ provider, result }, count)
      },
    })
    new CountedHistogram(
      {
        name: 'sallyport_llm_first_byte_seconds',
        help: 'From a request to a provider to the head of its answer.',
        labelNames: ['provider'],
        registers,
      },
      () => [...records].map(([provider, { firstByte }]) => [{ provider }, firstByte]),
    )
    new CountedHistogram(
      {
        name: 'sallyport_llm_gateway_seconds',
        help: "The gateway's own share of an LLM call: all its time but the waiting for providers.",
        registers,
      },
      () => [[{}, this.#own]],
    )
  }

  /** Counts a call that has ended. Costs less than a microsecond. */
  note(call: LlmCallFigures): void {
    const { provider, attempts, timing, at } = call
    const last = attempts.findLast(({ skipped }) => skipped === undefined)
    for (const attempt of attempts) {
      const record = this.#of(attempt.provider)
      increment(record.results, resultLabel(attempt))
      if (attempt.skipped !== undefined) continue
      increment(record.answers, statusLabel(attempt))
      if (attempt !== last) record.failed(at, attempt.reason ?? 'provider_failed')
    }
    if (timing) this.#own.add(Math.max(0, call.ms - timing.upstreamMs))
    this.#of(provider).ended(call, last)
  }

  standing(provider: string, at: number): ProviderStanding {
    return (this.#records.get(provider) ?? NO_RECORD).standing(at)
  }

  #of(provider: string): ProviderRecord {
    const known = this.#records.get(provider)
    if (known) return known
    const made = new ProviderRecord()
    this.#records.set(provider, made)
    return made
  }
}

const increment = <Label>(counts: Map<Label, number>, label: Label): void => {
  counts.set(label, (counts.get(label) ?? 0) + 1)
}

/** `ok`, `refused`, `skipped`, or the reason why it was left, without its prefix. */
function resultLabel({ status, reason, skipped }: AttemptFigures): string {
  if (skipped !== undefined) return 'skipped'
  return reason?.replace('provider_', '') ?? ((status ?? 0) < 400 ? 'ok' : 'refused')
}

/** A status of RFC 9110, or why there is none: no provider can make up a value. */
const statusLabel = ({ status = null, reason = 'none' }: AttemptFigures): string | number => {
  if (status === null) return reason
  return status in STATUS_CODES || status === 529 ? status : 'other'
}

/** Three buckets for each doubling: from a sixteenth of a millisecond to half an hour. */
const BUCKETS = 78
const FIRST_MS = 1 / 16

const bucketOf = (ms: number): number =>
  ms < FIRST_MS ? 0 : Math.min(BUCKETS - 1, 1 + Math.floor(Math.log2(ms / FIRST_MS) * 3))

const upperBound = (bucket: number): number => FIRST_MS * 2 ** (bucket / 3)

class DoublingHistogram {
  readonly counts = new Float64Array(BUCKETS)
  count = 0
  sumMs = 0

  add(ms: number, bucket = bucketOf(ms)): void {
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1
    this.count += 1
    this.sumMs += ms
  }
}

type ReadHistograms = () => readonly (readonly [Readonly<Record<string, string>>, DoublingHistogram])[]

/** A histogram whose numbers are counted elsewhere: one bucket for each doubling, from half a millisecond on. */
class CountedHistogram extends Histogram {
  readonly #read: ReadHistograms
  readonly #about: { readonly name: string; readonly help: string }

  constructor(
    { name, help, labelNames = [], registers }: HistogramConfiguration<string>,
    read: ReadHistograms,
  ) {
    super({ name, help, labelNames, registers: [] })
    this.#read = read
    this.#about = { name, help }
    for (const registry of registers ?? []) registry.registerMetric(this)
  }

  /** Asked for the text of `/metrics`, and by `get`. */
  getForPromString() {
    const { name, help } = this.#about
    const values = this.#read().flatMap(([sharedLabels, { counts, count, sumMs }]) => {
      const bucket = (le: number | string, value: number) =>
        ({ sharedLabels, labels: { le }, value, metricName: `${name}_bucket` }) as const
      return [
        ...BOUNDS.map((at) =>
          bucket(
            upperBound(at) / 1000,
            counts.subarray(0, at + 1).reduce((sum, one) => sum + one, 0),
          ),
        ),
        bucket('+Inf', count),
        { sharedLabels, labels: {}, value: sumMs / 1000, metricName: `${name}_sum` },
        { sharedLabels, labels: {}, value: count, metricName: `${name}_count` },
      ]
    })
    return Promise.resolve({ name, help, type: 'histogram', values, aggregator: 'sum' })
  }
}

const BOUNDS = Array.from({ length: 23 }, (_, doubling) => 3 * (doubling + 3))

class SpanCounts {
  /** The number of the span since the epoch that is counted here. */
  readonly step: number
  calls = 0
  errors = 0
  input = 0
  output = 0
  readonly durations = new Uint32Array(BUCKETS)
  readonly firstBytes = new Uint32Array(BUCKETS)

  constructor(step: number) {
    this.step = step
  }

  add(other: SpanCounts): void {
    this.calls += other.calls
    this.errors += other.errors
    this.input += other.input
    this.output += other.output
    for (let at = 0; at < BUCKETS; at += 1) {
      this.durations[at] = (this.durations[at] ?? 0) + (other.durations[at] ?? 0)
      this.firstBytes[at] = (this.firstBytes[at] ?? 0) + (other.firstBytes[at] ?? 0)
    }
  }
}

/** Counts of the last spans of equal length, each in a place that later spans use again. */
class SpanRing {
  readonly #spanMs: number
  readonly #spans: (SpanCounts | undefined)[]

  constructor(spanMs: number, count: number) {
    this.#spanMs = spanMs
    this.#spans = Array.from({ length: count })
  }

  at(at: number): SpanCounts {
    const step = Math.floor(at / this.#spanMs)
    const place = step % this.#spans.length
    const known = this.#spans[place]
    if (known?.step === step) return known
    const span = new SpanCounts(step)
    this.#spans[place] = span
    return span
  }

  sum(at: number): ProviderSpan {
    const newest = Math.floor(at / this.#spanMs)
    const all = new SpanCounts(newest)
    for (const span of this.#spans) if (span && span.step > newest - this.#spans.length) all.add(span)
    const { calls, errors, input, output, durations, firstBytes } = all
    return {
      calls,
      errors,
      tokens: { input, output },
      p50Ms: quantile(durations, 0.5),
      p99Ms: quantile(durations, 0.99),
      firstByteP50Ms: quantile(firstBytes, 0.5),
      firstByteP99Ms: quantile(firstBytes, 0.99),
    }
  }
}

function quantile(counts: Uint32Array, share: number): number | null {
  const total = counts.reduce((sum, count) => sum + count, 0)
  if (total === 0) return null
  let before = 0
  const bucket = counts.findIndex((count) => {
    before += count
    return before >= total * share
  })
  return Math.ceil(upperBound(bucket))
}

class ProviderRecord {
  /** The counts of its answers by label. */
  readonly answers = new Map<string | number, number>()
  readonly results = new Map<string, number>()
  readonly firstByte = new DoublingHistogram()
  readonly #hour = new SpanRing(60_000, 60)
  readonly #day = new SpanRing(1_800_000, 48)
  #answeringSince: number | null = null
  #failingSince: number | null = null
  #problem: string | null = null

  /** Counts an attempt after which another provider was asked. */
  failed(at: number, reason: string): void {
    for (const span of [this.#hour.at(at), this.#day.at(at)]) {
      span.calls += 1
      span.errors += 1
    }
    this.#judge(at, reason)
  }

  ended(call: LlmCallFigures, last: AttemptFigures | undefined): void {
    const { at, timing, tokens } = call
    const duration = bucketOf(call.ms)
    const firstByte = timing ? bucketOf(timing.firstByteMs) : -1
    if (timing) this.firstByte.add(timing.firstByteMs, firstByte)
    for (const span of [this.#hour.at(at), this.#day.at(at)]) {
      span.calls += 1
      if (call.failed) span.errors += 1
      span.input += tokens.input
      span.output += tokens.output
      span.durations[duration] = (span.durations[duration] ?? 0) + 1
      if (firstByte >= 0) span.firstBytes[firstByte] = (span.firstBytes[firstByte] ?? 0) + 1
    }
    this.#judge(at, last?.reason ?? call.reason ?? null)
  }

  /** A refusal of the request itself is an answer: callers must not make a provider fail. */
  #judge(at: number, reason: string | null): void {
    if (reason?.startsWith('provider_') && reason !== 'provider_refused') {
      this.#failingSince ??= at
      this.#answeringSince = null
      this.#problem = reason
    } else if (reason === null || reason === 'provider_refused') {
      this.#answeringSince ??= at
      this.#failingSince = null
      this.#problem = null
    }
  }

  standing(at: number): ProviderStanding {
    return {
      answeringSince: this.#answeringSince,
      failingSince: this.#failingSince,
      problem: this.#problem,
      hour: this.#hour.sum(at),
      day: this.#day.sum(at),
    }
  }
}

const NO_RECORD = new ProviderRecord()
