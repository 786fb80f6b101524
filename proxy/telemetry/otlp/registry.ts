import type { Registry } from 'prom-client'
import { CUMULATIVE, keyValues, nanoseconds } from './encode.ts'

type RegistryMetric = Awaited<ReturnType<Registry['getMetricsAsJSON']>>[number]
type Sample = RegistryMetric['values'][number] & { readonly metricName?: string }

interface PointTimes {
  readonly startTimeUnixNano: string
  readonly timeUnixNano: string
}

/** Returns the metrics of `/metrics` as OTLP has them, under the same names. `since`: from which they count. */
export async function registryMetrics(
  registry: Registry,
  since: number,
  at: () => number,
): Promise<readonly object[]> {
  const read = await registry.getMetricsAsJSON()
  const times = { startTimeUnixNano: nanoseconds(since), timeUnixNano: nanoseconds(at()) }
  return read.flatMap((metric) => metricOf(metric, times) ?? [])
}

/** Null: it has no sample, or is of a kind that the gateway has none of. */
function metricOf({ name, help, type, values }: RegistryMetric, times: PointTimes): object | null {
  if (values.length === 0) return null
  const named = { name, description: help }
  // The library states kinds as a number in its types and as a word in what it returns.
  const kind = String(type)
  if (kind === 'gauge') return { ...named, gauge: { dataPoints: numberPoints(values, times) } }
  if (kind === 'counter')
    return {
      ...named,
      sum: {
        dataPoints: numberPoints(values, times),
        aggregationTemporality: CUMULATIVE,
        isMonotonic: true,
      },
    }
  if (kind === 'histogram')
    return {
      ...named,
      histogram: {
        dataPoints: histogramPoints(name, values, times),
        aggregationTemporality: CUMULATIVE,
      },
    }
  return null
}

const numberPoints = (values: readonly Sample[], times: PointTimes): readonly object[] =>
  values
    .filter(({ value }) => Number.isFinite(value))
    .map(({ labels, value }) => ({ attributes: keyValues(labels), ...times, asDouble: value }))

interface CollectedPoint {
  readonly labels: Sample['labels']
  /** Cumulative, by bound. */
  readonly buckets: [bound: number, count: number][]
  sum: number
  count: number
}

function histogramPoints(name: string, values: readonly Sample[], times: PointTimes): readonly object[] {
  const points = new Map<string, CollectedPoint>()
  for (const { metricName, labels, value } of values) {
    const { le, ...own } = labels
    const key = JSON.stringify(own)
    const point = points.get(key) ?? { labels: own, buckets: [], sum: 0, count: 0 }
    points.set(key, point)
    if (metricName === `${name}_sum`) point.sum = value
    else if (metricName === `${name}_count`) point.count = value
    else if (le !== '+Inf') point.buckets.push([Number(le), value])
  }
  return [...points.values()].map(({ labels, buckets, sum, count }) => {
    const below = [...buckets.map(([, upTo]) => upTo), count]
    return {
      attributes: keyValues(labels),
      ...times,
      count: String(count),
      sum,
      bucketCounts: below.map((upTo, index) => String(upTo - (below[index - 1] ?? 0))),
      explicitBounds: buckets.map(([bound]) => bound),
    }
  })
}
