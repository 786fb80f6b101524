import { type AttributeMap, CUMULATIVE, keyValues, nanoseconds } from './encode.ts'
import { ATTRIBUTES, HISTOGRAMS } from './names.ts'

/** The series of one histogram at most: names of models are the callers'. Others are one more. */
export const MAX_SERIES = 512

interface HistogramSeries {
  readonly attributes: AttributeMap
  readonly buckets: number[]
  sum: number
  count: number
}

type HistogramShape = (typeof HISTOGRAMS)[keyof typeof HISTOGRAMS]

/** Counts values in buckets, by their attributes, since it was made. */
class SeriesHistogram {
  readonly #shape: HistogramShape
  readonly #series = new Map<string, HistogramSeries>()

  constructor(shape: HistogramShape) {
    this.#shape = shape
  }

  record(value: number, attributes: AttributeMap): void {
    const key = keyOf(attributes)
    const series = this.#series.get(key) ?? this.#open(key, attributes)
    const found = this.#shape.bounds.findIndex((bound) => value <= bound)
    const bucket = found < 0 ? this.#shape.bounds.length : found
    series.buckets[bucket] = (series.buckets[bucket] ?? 0) + 1
    series.sum += value
    series.count += 1
  }

  #open(key: string, attributes: AttributeMap): HistogramSeries {
    const isOver = this.#series.size >= MAX_SERIES
    const known = isOver ? this.#series.get(OVERFLOW) : undefined
    if (known) return known
    const made = {
      attributes: isOver ? { [ATTRIBUTES.overflow]: true } : attributes,
      buckets: Array.from({ length: this.#shape.bounds.length + 1 }, () => 0),
      sum: 0,
      count: 0,
    }
    this.#series.set(isOver ? OVERFLOW : key, made)
    return made
  }

  /** Returns the metric; null while it has counted nothing. */
  metric(since: number, at: number): object | null {
    if (this.#series.size === 0) return null
    const { name, unit, description, bounds } = this.#shape
    const dataPoints = [...this.#series.values()].map(({ attributes, buckets, sum, count }) => ({
      attributes: keyValues(attributes),
      startTimeUnixNano: nanoseconds(since),
      timeUnixNano: nanoseconds(at),
      count: String(count),
      sum,
      bucketCounts: buckets.map(String),
      explicitBounds: bounds,
    }))
    return { name, unit, description, histogram: { dataPoints, aggregationTemporality: CUMULATIVE } }
  }
}

const OVERFLOW = 'overflow'

/** The attributes of one histogram are always the same ones, in one order: their values tell series apart. */
function keyOf(attributes: AttributeMap): string {
  let key = ''
  for (const name in attributes) key += `${String(attributes[name])}\n`
  return key
}

/** The histograms of the conventions for calls to models and MCP messages. */
export class CallHistograms {
  readonly duration = new SeriesHistogram(HISTOGRAMS.duration)
  readonly tokens = new SeriesHistogram(HISTOGRAMS.tokens)
  readonly mcp = new SeriesHistogram(HISTOGRAMS.mcp)

  metrics(since: number, at: number): readonly object[] {
    return [this.duration, this.tokens, this.mcp].flatMap((one) => one.metric(since, at) ?? [])
  }
}
