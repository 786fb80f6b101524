import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { type Arrival, type CallSettlement, Pipeline, type Recorder } from '../../../plugins/plugin.ts'
import { router } from '../../../proxy/http/arrival.ts'
import { FileDescriptors } from '../../../proxy/http/descriptors.ts'
import { MemoryBudget, RequestDrain } from '../../../proxy/http/open-calls.ts'
import type { Reply } from '../../../proxy/http/reply.ts'
import { onSurface, openRoute } from '../../../proxy/http/route.ts'
import { createRequestListener } from '../../../proxy/http/serve.ts'
import { createLogs } from '../../../proxy/telemetry/log.ts'
import { createMetrics } from '../../../proxy/telemetry/metrics.ts'

interface Test {
  readonly teardown: (end: () => unknown) => void
}

const none = (): Promise<number> => Promise.resolve(0)

/** A real server around one route, with what its log and its figures say. */
async function serving(t: Test, reply: () => Reply, settled: (settlement: CallSettlement) => void) {
  const lines: { step?: string; msg: string; err?: { message: string } }[] = []
  const metrics = createMetrics({
    waiting: () => 0,
    owed: () => 0,
    held: () => 0,
    unsealed: () => Promise.resolve(0),
    sealingStopped: () => false,
    archiveAlarm: () => Promise.resolve({ overdue: false, last: null }),
    lateAnchors: () => Promise.resolve(0),
    exportLags: () => Promise.resolve([]),
    brokenExpectations: () => Promise.resolve(0),
    quarantined: none,
    unreadable: none,
    unreadBundles: () => 0,
    diskFree: () => 0,
    diskReserve: () => 0,
    failing: () => false,
    lostLines: () => 0,
    reachable: async () => true,
    listening: () => true,
    descriptors: new FileDescriptors(false),
    providerStates: () => [],
    limits: async () => [],
    certificates: async () => new Map(),
  })
  const recorder: Recorder<Arrival> = {
    allowed: () => Promise.resolve(null),
    refused: () => Promise.resolve(null),
    settled: (_facts, settlement) => settled(settlement),
  }
  const routes = router(onSurface('public', [openRoute('GET', '/x', Pipeline.start(), reply, recorder)]))
  const drain = new RequestDrain()
  const budget = new MemoryBudget({ process: 1e6, perPrincipal: 1e6, perAnonymous: 1e6 }, () => {})
  const listener: RequestListener = createRequestListener({
    mounted: { router: routes },
    ...createLogs('info', { write: (line: string) => void lines.push(JSON.parse(line)) }),
    metrics,
    clock: Date.now,
    writeStallMs: 5_000,
    drain,
    budget,
    telemetry: { current: null },
    moves: { count: 0 },
  })
  const server = createServer(listener)
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  t.teardown(() => server.close())
  const { port } = server.address() as AddressInfo
  return {
    lines,
    budget,
    get: async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/x`, { headers: { connection: 'close' } })
      const body = await answer.text()
      await drain.finish(5_000)
      return { status: answer.status, body }
    },
    faults: async () => (await metrics.faults.get()).values.map(({ labels, value }) => [labels.step, value]),
  }
}

await t.test(
  'a report that throws is logged and counted; the caller has its answer, and the outcome is settled',
  async (t) => {
    const settlements: CallSettlement[] = []
    const broken = (): Reply => ({
      status: 200,
      body: 'fine',
      report: () => {
        throw new Error('the report is on fire')
      },
    })
    const { get, lines, faults } = await serving(t, broken, (settlement) => settlements.push(settlement))
    t.same(await get(), { status: 200, body: 'fine' })
    t.match(settlements, [{ status: 'success', detail: { http_status: 200, ending: 'complete' } }])
    t.strictSame(await faults(), [['report', 1]])
    t.match(lines, [
      { step: 'report', err: { message: 'the report is on fire' } },
      { msg: 'request', status: 200 },
    ])
  },
)

await t.test('what throws while a call is settled ends neither the process nor the next call', async (t) => {
  const fine = (): Reply => ({ status: 200, body: 'fine' })
  const { get, lines, faults } = await serving(t, fine, () => {
    throw new Error('no row today')
  })
  t.same(await get(), { status: 200, body: 'fine' })
  t.same(await get(), { status: 200, body: 'fine' })
  t.strictSame(await faults(), [['audit', 2]])
  t.equal(lines.filter(({ msg }) => msg === 'request').length, 2)
})

await t.test(
  'an answer that Node will not write ends its connection, and is logged like any other',
  async (t) => {
    const unsendable = (): Reply => ({ status: 200, headers: { 'x-bad': 'a\nb' }, body: 'fine' })
    const { get, lines } = await serving(t, unsendable, () => {})
    await t.rejects(get())
    t.match(lines, [{ msg: 'an answer could not be sent' }, { msg: 'request' }])
  },
)

await t.test('A4: an answer that is lost does not stay counted', async (t) => {
  let most = 0
  const long = (): Reply => ({ status: 200, headers: { 'x-bad': 'a\nb' }, body: 'x'.repeat(100_000) })
  const { get, budget } = await serving(t, long, () => {
    most = budget.held
  })
  await t.rejects(get())
  t.equal(most, 100_000, 'it is counted until the call has ended')
  t.equal(budget.held, 0)
})
