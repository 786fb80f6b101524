import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { OPTIONS, told } from '../support/llm/translate.ts'
import { isChosen, nameOf } from './chosen.ts'
import { gatewayStart } from './ground/gateway.ts'
import type { Measured } from './job.ts'
import { BURST_ANSWER, COMPLETION } from './load/messages.ts'
import { MESSAGES_ANSWER, wireCall } from './load/wire-calls.ts'
import { MCP, type Point, TRANSLATED } from './points.ts'
import { report } from './report/report.ts'
import { isMet, targetsOf } from './report/targets.ts'
import { type Results, worsePoints } from './results.ts'
import type { Row } from './row.ts'
import { STREAMS, streamsName } from './streams/measure.ts'
import { subjects } from './subjects.ts'

const MEASURED: Measured = {
  ...{ requests: 1_000, errors: 0, perSecond: 8_000, p50: 1_000, p99: 3_000, firstP50: 900, firstP99: 2_000 },
  ...{ cpuUs: 100, rssMb: 120, generatorBusy: 0.5 },
}
const row = (server: string, point: string, connections: number, figures: Partial<Row> = {}): Row => ({
  ...{ ...MEASURED, server, point, connections, loopP99Ms: null },
  ...figures,
})

const NOTHING: Results = {
  conditions: {
    ...{ at: '2026-11-22 12:00', node: '24.21.0', processor: 'one', cores: 2, pinned: true, warmupS: 1 },
    ...{ seconds: 2, rounds: 1, loadBefore: 0.1, peers: [{ name: 'nginx', version: null }] },
  },
  ...{
    rows: [],
    startUp: null,
    fullStart: null,
    ledger: [],
    postgres: [],
    postgresCalls: [],
    postgresIdle: [],
    rehearsals: [],
    dashboards: [],
    proofs: null,
    streams: [],
    callCost: null,
    limits: [],
    toldEvents: [],
    es256: null,
    fault: null,
  },
  ...{ pairs: [], costs: [], other: null },
}

t.test('what a call takes of a disk and of a database server is held against its targets', (t) => {
  const callCost = { calls: 1, decisionUs: 5, storedPerRow: 908, loggedPerRow: 1_900 }
  const found = targetsOf({
    ...NOTHING,
    callCost,
    postgresRoom: { serverUs: 98, logged: 2_316, stored: 2_100 },
  })
  const met = (figure: string): boolean | null | undefined => {
    const target = found.find((one) => one.figure.startsWith(figure))
    return target && isMet(target)
  }
  t.same(
    [met('ledger alone, a call on disk, SQLite'), met('ledger alone, a call on disk, PostgreSQL')],
    [true, false],
  )
  t.same([met('ledger alone, a call in the log'), met("ledger alone, PostgreSQL's CPU")], [true, true])
  t.end()
})

t.test('a translated call is judged beside the one of its provider’s own API', (t) => {
  const at = (point: string, cpuUs: number) => row('gateway-translating', point, 4, { cpuUs })
  const rows = [
    ...[at('chat 76 KB', 400), at('messages>chat 76 KB', 2_400)],
    ...[at('chat stream', 500), at('messages>chat stream', 1_500)],
    ...[at('messages stream', 600), at('responses>messages stream', 4_600)],
  ]
  const event = { events: 1_000, p99: 90 }
  const toldEvents = [
    { ...event, wires: 'messages>chat', p50: 3 },
    { ...event, wires: 'responses>messages', p50: 31 },
  ]
  const found = targetsOf({ ...NOTHING, rows, toldEvents }).filter(({ figure }) => /translat/.test(figure))
  t.same(
    found.map((target) => [target.reached, isMet(target)]),
    [
      [2, true],
      [40, false],
      [31, false],
    ],
  )
  t.end()
})

t.test('the answers and calls of the translated points can be told whole', (t) => {
  const streams = { chat: BURST_ANSWER, messages: MESSAGES_ANSWER }
  for (const { name, kind, wires, body } of TRANSLATED) {
    if (wires === undefined || wires.from === wires.to || typeof kind !== 'string') continue
    const call = wireCall(wires, kind, body)
    const { body: sent, answer } = told(wires.from, call.body, {
      ...{ ...OPTIONS, model: kind, wire: wires.to },
    })
    t.ok(sent.startsWith(`{"model":"${kind}"`), `${name}: the upstream looks for it there`)
    if (kind === 'json') t.not(answer.document(Buffer.from(COMPLETION)), null, name)
    else {
      const text = streams[wires.to].toString()
      // Without the head and the framing of its chunks.
      const events = [...text.matchAll(/(?:^|\n)(event: .*\n)?data: .*\n\n/g)].map(([event]) =>
        event.trimStart(),
      )
      t.ok(events.length >= 99, name)
      answer.push(Buffer.from(events.join('')))
      t.equal(answer.isWhole, true, name)
    }
  }
  t.end()
})

t.test('a target that was not measured is neither met nor missed', (t) => {
  t.ok(targetsOf(NOTHING).every((target) => isMet(target) === null))
  t.notMatch(report(NOTHING), /\| (yes|NO) \|/)
  t.match(report(NOTHING), 'nginx (not installed)', 'a peer that is not there is told')
  t.end()
})

t.test('a target is judged by the points of the same run, and by the worst of those that count', (t) => {
  const results: Results = {
    ...NOTHING,
    rows: [
      row('gateway', 'json', 64, { loopP99Ms: 12 }),
      row('gateway', 'json', 256, { loopP99Ms: 30, rssMb: 260 }),
      row('gateway', 'json', 1, { p50: 1_000, p99: 4_000 }),
      row('upstream', 'json', 1, { p50: 200, p99: 500 }),
      row('http-proxy-3', 'json', 64, { perSecond: 7_000 }),
      row('gateway-mcp', 'mcp legacy', 64, { cpuUs: 120 }),
    ],
    pairs: [{ point: 'json', connections: 64, own: MEASURED, other: { ...MEASURED, cpuUs: 400 } }],
    other: '0.6.4',
    costs: [
      {
        ...{ server: 'gateway', point: 'json', connections: 64, calls: 10_000, rows: 2 },
        ...{ loopBytes: 14_000, threadsBytes: 4_000, pausesUs: 3, fileBytes: 2_300, logBytes: 2_900 },
      },
    ],
  }
  const found = new Map(targetsOf(results).map((target) => [target.figure, [target.reached, isMet(target)]]))
  t.strictSame(found.get('CPU per request, c=64'), [0.25, true])
  t.strictSame(found.get('heap allocated per request, all threads'), [18, true])
  t.strictSame(found.get('added p50, c=1'), [0.8, true])
  t.strictSame(found.get('added p99, c=1'), [3.5, true])
  t.strictSame(found.get('event loop p99, worst point'), [30, false])
  t.strictSame(found.get('memory, 256 connections under load'), [260, false])
  t.strictSame(found.get('tools/call, legacy, CPU per call'), [1.2, false])
  t.match(report(results), /\| CPU per request, c=64, × 0\.6\.4 +\| +≤ 0\.40 \| +≤ 0\.28 \| +0\.25 \| yes \|/)
  t.end()
})

t.test(
  'a point that takes a tenth more of the CPU than the other gateway fails the run, and names itself',
  (t) => {
    const pair = (point: string, own: number | null): Results['pairs'][number] => ({
      ...{ point, connections: 64 },
      own: { ...MEASURED, cpuUs: own },
      other: MEASURED,
    })
    const stream = (server: string, streams: number, cpuUs: number): Results['streams'][number] => ({
      ...{ server, streams, everyMs: 50, cpuUs, eventsPerSecond: 6_000, lateP50: 1, lateP99: 2 },
      ...{ rssMb: 400, errors: 0, generatorBusy: 0.2 },
    })
    const pairs = [pair('json', 109), pair('burst', 112), pair('denied', null)]
    const streams = [
      ...[stream('gateway', 300, 80), stream('other', 300, 70), stream('http-proxy-3', 300, 60)],
      ...[stream('gateway', 500, 70), stream('other', 500, 80), stream('gateway', 2_000, 90)],
    ]
    t.strictSame(worsePoints({ pairs, streams }), [
      "burst c=64: 1.12 of the other's CPU",
      "streams c=300: 1.14 of the other's CPU",
    ])
    t.strictSame(worsePoints(NOTHING), [])
    t.end()
  },
)

t.test('the short form measures every point that a target asks for', (t) => {
  const plan = {
    ...{ warmupS: 1, seconds: 2, rounds: 1, only: '', idle: 10_000, startRows: 0 },
    rehearse: 0,
    browse: 0,
    seal: 0,
    short: true,
  }
  const all = { ...plan, profileDir: undefined, peers: undefined, postgres: undefined }
  const chosen = subjects(all.idle).flatMap(({ name, points }) =>
    points
      .filter((point) => isChosen(all, nameOf(name, point)))
      .map((point) => row(name, point.name, point.connections)),
  )
  const rows = chosen.map((one) => ({ ...one, loopP99Ms: 1 }))
  const streams = ['gateway', 'http-proxy-3'].flatMap((server) =>
    STREAMS.filter((sort) => isChosen(all, streamsName(server, sort.streams))).map((sort) => ({
      ...{ server, ...sort, eventsPerSecond: 6_000, cpuUs: 80, lateP50: 1, lateP99: 2 },
      ...{ rssMb: 400, errors: 0, generatorBusy: 0.2 },
    })),
  )
  const missing = targetsOf({ ...NOTHING, rows, streams }).filter((target) => isMet(target) === null)
  const others = /PostgreSQL: |× 0\.6\.4|heap|ES256|ledger alone|a row |an event|ready/
  const named = missing.map(({ figure, unit }) => `${figure} ${unit}`)
  t.strictSame(
    named.filter((figure) => !others.test(figure)),
    [],
  )
  t.notOk(
    MCP.some((point: Point) => point.name.includes('DPoP') && isChosen(all, nameOf('gateway-mcp', point))),
  )
  t.end()
})

t.test('a gateway is started as its own npm start has it', async (t) => {
  const root = t.testdir({
    'package.json': '{"version":"1","scripts":{"start":"SOME=2 node --some-flag proxy/main.ts"}}',
  })
  const directory = join(root, 'run')
  mkdirSync(join(directory, 'data'), { recursive: true })
  writeFileSync(join(directory, 'data/file'), '')
  const identity = { ca: '', cert: '', key: '' }
  const ground = {
    ...{ directory, root, env: { OTHER: '1' }, dataDir: join(directory, 'data') },
    ...{ allowed: identity, denied: identity, proven: { ...identity, dpopKey: {} } },
  }
  const { args, env } = await gatewayStart(ground, 'it')
  t.strictSame(args, ['--some-flag', join(root, 'proxy/main.ts')])
  t.strictSame(env, { SOME: '2', OTHER: '1', MCP_PROXY_DATA_DIR: join(directory, 'data-it') })
})

t.test('the ledger on PostgreSQL is a table, with the sum of its processes', (t) => {
  const postgres = [
    { kind: 'decision', processes: 2, committers: 64, perSecond: 12_345.6, p50: 5_000, p99: 9_000 },
  ] as const
  t.match(report({ ...NOTHING, postgres }), /\| decision +\| +2 \| +64 \| +12,346 \| +5,000 \| +9,000/)
  t.match(report(NOTHING), /### The ledger on PostgreSQL\n\nnot measured/)
  t.end()
})

t.test('rehearsals are tables, and judged by a million decisions alone', (t) => {
  const calls = { perSecond: 300, p50: 1_000, p99: 3_000 }
  const found = {
    ...{ engine: 'sqlite' as const, decisions: 1_000_000, wholeMs: 2_900, wholeCpuMs: 2_800, grownMb: 40 },
    ...{ firstPreviewMs: 180, previewMs: 120, calls, callsBeside: { ...calls, p99: 4_000 }, besideMs: 5_000 },
  }
  const whole = report({ ...NOTHING, rehearsals: [found] })
  t.match(whole, /\| sqlite \| +1,000,000 \| +2,900 \| +2,800 \| +40 \| +180 \| +120 \|/)
  t.match(whole, /\| callsBeside p99 \|[\s\S]*\| +4,000 \|/)
  t.match(whole, /rehearsal of 1,000,000 decisions, sqlite, ms +\| +≤ 3,000 .* yes/)
  t.match(whole, /preview of one principal, 30 days, sqlite, ms +\| +≤ 100 .* NO/)
  t.notMatch(report({ ...NOTHING, rehearsals: [{ ...found, decisions: 5 }] }), /rehearsal of 1,000,000/)
  t.end()
})

t.test('PostgreSQL is judged at c=64, four gateways by one, and the idle one that asks most', (t) => {
  const point = (gateways: number, serverUs: number | null) => ({
    ...{
      gateways,
      connections: 64,
      perSecond: 900,
      p50: 1_000,
      p99: 3_000,
      errors: 0,
      gatewaysUs: 300,
      serverUs,
    },
    ...{ walBytes: 2_400, statements: 0.4, roundTrips: 0.2, callsPerCommit: 24 },
  })
  const results: Results = {
    ...NOTHING,
    postgresCalls: [point(1, 100), { ...point(1, 900), connections: 1 }, point(4, 150)],
    postgresIdle: [
      { gateways: 1, most: 5, all: 5 },
      { gateways: 4, most: 5.5, all: 16 },
    ],
  }
  const found = (named: string) => targetsOf(results).find(({ figure }) => figure.includes(named))
  t.equal(found('its CPU per call, c=64')?.reached, 100)
  t.equal(found('with four gateways')?.reached, 1.5)
  t.equal(found('idle gateway')?.reached, 5.5)
  const elsewhere = { ...NOTHING, postgresCalls: [point(1, null)] }
  t.equal(
    targetsOf(elsewhere).find(({ figure }) => figure.includes('its CPU per call, c=64'))?.reached,
    undefined,
  )
  t.match(report(results), /### Whole calls on PostgreSQL\n\n\| gateways/)
  t.end()
})
