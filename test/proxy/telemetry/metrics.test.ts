import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import t from 'tap'
import { createMetrics, type GatewayMetrics } from '../../../proxy/telemetry/metrics.ts'

/** The metrics of a gateway that has nothing to tell. */
const metricsOf = (waiting: number): GatewayMetrics =>
  createMetrics({
    waiting: () => waiting,
    owed: () => 0,
    held: () => 0,
    unsealed: async () => 0,
    lateAnchors: async () => 0,
    brokenExpectations: async () => 0,
    quarantined: async () => 0,
    unreadable: async () => 0,
    unreadBundles: () => 0,
    diskFree: () => 0,
    diskReserve: () => 0,
    failing: () => false,
    lostLines: () => 0,
    reachable: async () => true,
    listening: () => true,
    descriptors: { limit: null, open: null, connections: 0, mostConnections: 0 },
    certificates: async () => new Map(),
  })

t.test('gateways of one process tell of the process alike, and each of itself', async (t) => {
  for (const metrics of [metricsOf(1), metricsOf(2)]) {
    metrics.summarised.inc()
    const text = await metrics.registry.metrics()
    t.match(text, /^nodejs_heap_size_used_bytes \d/m)
    t.match(text, /^nodejs_eventloop_lag_p99_seconds \d/m)
    t.match(text, /^sallyport_refusals_summarised_total 1$/m)
  }
})

t.test('the metrics of the process hold no gateway that is gone', async (t) => {
  const gone = [1, 2, 3].map((waiting) => new WeakRef(metricsOf(waiting).registry))
  setFlagsFromString('--expose_gc')
  const collect = runInNewContext('gc')
  // A reference that was just made or read lives until the end of its turn.
  for (let turn = 0; turn < 3; turn += 1) {
    await new Promise((resolve) => setImmediate(resolve))
    collect()
  }
  t.same(
    gone.map((registry) => registry.deref()),
    [undefined, undefined, undefined],
  )
})
