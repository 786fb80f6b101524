import type { Cost } from '../costs.ts'
import { BURST_EVENTS } from '../load/messages.ts'
import { BODIES, LONG_RESULTS, PICTURES } from '../points.ts'
import { number, type Results } from '../results.ts'
import { type Row, rowOf } from '../row.ts'
import {
  BARE_PROXY,
  DIRECT,
  GATEWAY,
  GATEWAY_IDLE,
  GATEWAY_MCP,
  GATEWAY_NO_TELEMETRY,
  GATEWAY_TELEMETRY,
  GATEWAY_TRANSLATING,
} from '../subjects.ts'
import { table } from './table.ts'

/** A figure that is wanted, and what was reached. */
export interface Target {
  readonly figure: string
  readonly unit: string
  readonly wanted: Wanted
  /** Undefined where it was not measured. */
  readonly reached: number | undefined
}

interface Wanted {
  readonly is: 'least' | 'most'
  readonly value: number
  /** What would be better still. */
  readonly stretch?: number
  readonly digits?: number
}

const least = (value: number, stretch?: number, digits = 0): Wanted => wanted('least', value, stretch, digits)
const most = (value: number, stretch?: number, digits = 0): Wanted => wanted('most', value, stretch, digits)

function wanted(is: Wanted['is'], value: number, stretch: number | undefined, digits: number): Wanted {
  return { is, value, digits, ...(stretch !== undefined && { stretch }) }
}

/** True where a target was met. Null where it was not measured. */
export function isMet({ wanted: { is, value }, reached }: Target): boolean | null {
  if (reached === undefined || Number.isNaN(reached)) return null
  return is === 'least' ? reached >= value : reached <= value
}

/** Tables the targets, each with what was reached. */
export function reportTargets(results: Results): string {
  return table(
    ['figure', 'target', 'stretch', 'reached', 'met'],
    targetsOf(results).map((target) => {
      const { figure, unit, wanted: want, reached } = target
      const met = isMet(target)
      const sign = want.is === 'least' ? '≥' : '≤'
      return [
        unit === '' ? figure : `${figure}, ${unit}`,
        `${sign} ${number(want.value, want.digits)}`,
        want.stretch === undefined ? '–' : `${sign} ${number(want.stretch, want.digits)}`,
        met === null || reached === undefined ? '–' : number(reached, want.digits),
        met === null ? '–' : met ? 'yes' : 'NO',
      ]
    }),
  )
}

/** The heap of all threads that a call takes. KB of 1,000 bytes. */
const heapKbOf = ({ loopBytes, threadsBytes }: Cost): number => (loopBytes + threadsBytes) / 1_000

/** Lists every target of the project, in the order in which they were set. */
export function targetsOf(results: Results): readonly Target[] {
  const { es256, startUp, fullStart, ledger, callCost, pairs, costs, postgresRoom: room } = results
  const at = (server: string, point: string, connections?: number): Row | undefined =>
    rowOf(results.rows, { server, point, ...(connections !== undefined && { connections }) })
  const whole = at(GATEWAY, 'json', 64)
  const alone = [at(GATEWAY, 'json', 1), at(DIRECT, 'json', 1)]
  const halfCore = [at(GATEWAY, 'half core'), at(DIRECT, 'half core')]
  const paced = [at(GATEWAY, 'paced'), at(DIRECT, 'paced')]
  const pair = pairs.find(({ point, connections }) => point === 'json' && connections === 64)
  const heap = costs.find(({ server, point }) => server === GATEWAY && point === 'json')
  const fastest = ledger.toSorted((a, b) => b.rowsPerSecond - a.rowsPerSecond)[0]
  const loops = results.rows.flatMap(({ loopP99Ms }) => (loopP99Ms === null ? [] : [loopP99Ms]))
  const streamsOf = (server: string, streams: number) =>
    results.streams.find((point) => point.server === server && point.streams === streams)
  const lessLate = (figure: 'lateP50' | 'lateP99'): number | undefined => {
    const [ours, bare] = [streamsOf(GATEWAY, 300), streamsOf(BARE_PROXY, 300)]
    return ours && bare && ours[figure] - bare[figure]
  }
  const target = (
    figure: string,
    unit: string,
    want: Wanted,
    reached: number | null | undefined,
  ): Target => ({
    ...{ figure, unit, wanted: want },
    reached: reached ?? undefined,
  })
  // Beside the call of the provider's own API.
  const added = (point: string, own: string): number | undefined => {
    const [told, same] = [at(GATEWAY_TRANSLATING, point)?.cpuUs, at(GATEWAY_TRANSLATING, own)?.cpuUs]
    return told && same ? told - same : undefined
  }
  const perEvent = [
    added('messages>chat stream', 'chat stream'),
    added('responses>messages stream', 'messages stream'),
  ].map((us) => us && us / BURST_EVENTS)
  const refused = (point: string, what: string): Target =>
    target(`refused: ${what}, a durable row`, 'per s', least(10_000), at(GATEWAY, point)?.perSecond)
  return [
    target(
      'whole gateway, c=64',
      `× ${BARE_PROXY}`,
      least(1, 1.4, 2),
      over(whole?.perSecond, at(BARE_PROXY, 'json', 64)?.perSecond),
    ),
    target(
      `CPU per request, c=64`,
      `× ${results.other ?? '0.6.4'}`,
      most(0.4, 0.28, 2),
      over(pair?.own.cpuUs, pair?.other.cpuUs),
    ),
    target(
      'telemetry, all signals: added to a call, c=64',
      'µs of CPU',
      most(25),
      less([at(GATEWAY_TELEMETRY, 'json', 64), at(GATEWAY_NO_TELEMETRY, 'json', 64)], 'cpuUs'),
    ),
    target('heap allocated per request, all threads', 'KB', most(20, 10, 1), heap && heapKbOf(heap)),
    target(
      'with a fresh DPoP proof each, c=64',
      '× bare ES256 verification',
      least(0.35, 0.45, 2),
      over(at(GATEWAY, 'DPoP', 64)?.perSecond, es256?.bare.perSecond),
    ),
    target('added p50, c=1', 'ms', most(0.9, 0.6, 2), ms(less(alone, 'p50'))),
    target('added p99, c=1', 'ms', most(5, 3, 2), ms(less(alone, 'p99'))),
    target('added p99, half of the core', 'ms', most(10, 5, 1), ms(less(halfCore, 'p99'))),
    target(
      'streaming, 100 events in a burst',
      `× ${BARE_PROXY}`,
      least(0.9, 1.2, 2),
      over(at(GATEWAY, 'burst')?.perSecond, at(BARE_PROXY, 'burst')?.perSecond),
    ),
    ...BODIES.map(({ name }) =>
      target(
        `CPU of a call of ${name}`,
        `${BARE_PROXY} ÷ ours`,
        name === '4 MiB' ? least(0.5, undefined, 2) : least(0.55, 0.75, 2),
        over(at(BARE_PROXY, name)?.cpuUs, at(GATEWAY, name)?.cpuUs),
      ),
    ),
    target(
      '300 streams of 20 events a second, CPU per event',
      `${BARE_PROXY} ÷ ours`,
      least(0.9, 1, 2),
      over(streamsOf(BARE_PROXY, 300)?.cpuUs, streamsOf(GATEWAY, 300)?.cpuUs),
    ),
    target('the same, an event added p50', 'ms', most(0.3, undefined, 2), ms(lessLate('lateP50'))),
    target('the same, an event added p99', 'ms', most(8, undefined, 1), ms(lessLate('lateP99'))),
    target(
      '2,000 streams open, memory',
      `× ${BARE_PROXY}`,
      most(1.2, 1.1, 2),
      over(streamsOf(GATEWAY, 2_000)?.rssMb, streamsOf(BARE_PROXY, 2_000)?.rssMb),
    ),
    target(
      'a translated call of 76 KB, added CPU',
      'ms',
      most(3, undefined, 1),
      ms(added('messages>chat 76 KB', 'chat 76 KB')),
    ),
    target(
      'a translated stream, added CPU per event, the dearer direction',
      'µs',
      most(30, undefined, 1),
      perEvent.every((us) => us !== undefined) ? Math.max(...perEvent) : undefined,
    ),
    target(
      'translation of an event, p50, the dearest direction',
      'µs',
      most(30, undefined, 1),
      results.toldEvents.length === 0 ? undefined : Math.max(...results.toldEvents.map(({ p50 }) => p50)),
    ),
    // A shorter one costs what any call does.
    ...LONG_RESULTS.flatMap(({ name, kind }) =>
      typeof kind === 'string' || (kind.bytes ?? 0) < 1_000_000
        ? []
        : target(
            `CPU of a call, ${name}`,
            'ns a byte',
            most(6, 3, 1),
            over((at(GATEWAY_MCP, name)?.cpuUs ?? Number.NaN) * 1_000, kind.bytes),
          ),
    ),
    target('added to the first streamed byte, p50', 'ms', most(1.2, 0.9, 2), ms(less(paced, 'firstP50'))),
    ...(['legacy', 'modern'] as const).map((era) =>
      target(
        `tools/call, ${era}, CPU per call`,
        '× LLM call',
        most(1.15, undefined, 2),
        over(at(GATEWAY_MCP, `mcp ${era}`, 64)?.cpuUs, whole?.cpuUs),
      ),
    ),
    target('denied by capability, a durable row', 'per s', least(7_000), at(GATEWAY, 'denied')?.perSecond),
    refused('wrong type', 'another content type'),
    refused('oversized proof', 'a proof that is too long'),
    refused('other typ', 'a proof of another typ'),
    refused('stale iat', 'a proof an hour old'),
    target('ledger alone', 'rows/s', least(35_000, 60_000), fastest?.rowsPerSecond),
    target('ledger alone, CPU in its thread', 'µs per row', most(25), fastest?.writerUs),
    target('a row on disk, indexes included', 'bytes', most(1_200), callCost?.storedPerRow),
    target('a row in the log', 'bytes', most(1_500), callCost?.loggedPerRow),
    target(
      'ledger alone, a call on disk, SQLite',
      'KB',
      most(2, 1.6, 2),
      callCost && (callCost.storedPerRow * 2) / 1_000,
    ),
    target(
      'ledger alone, a call on disk, PostgreSQL',
      'KB',
      most(2, undefined, 2),
      room && room.stored / 1_000,
    ),
    target(
      'ledger alone, a call in the log, PostgreSQL',
      'KB',
      most(2.5, undefined, 2),
      room && room.logged / 1_000,
    ),
    target(
      "ledger alone, PostgreSQL's CPU, 12 calls a commit",
      'µs per call',
      most(150, 100),
      room?.serverUs,
    ),
    target(
      'event loop p99, worst point',
      'ms',
      most(20, 10, 1),
      loops.length > 0 ? Math.max(...loops) : null,
    ),
    target('memory, ready', 'MiB', most(140, 110), startUp?.rssMb),
    target('memory, 256 connections under load', 'MiB', most(250, 200), at(GATEWAY, 'json', 256)?.rssMb),
    target(
      'memory, 64 pictures of 4 MiB at once, all served',
      'MiB',
      most(400),
      at(GATEWAY, PICTURES.name)?.rssMb,
    ),
    target('memory, 10,000 idle connections', 'MiB', most(1_024), at(GATEWAY_IDLE, 'idle', 10_000)?.rssMb),
    target('ready on an existing data directory', 'ms', most(1_000), startUp?.readyMs),
    ...results.rehearsals.flatMap(targetsOfRehearsals),
    ...targetsOnPostgres(results),
    target('ready with 5,000,000 rows', 'ms', most(2_000), of5M(fullStart)?.readyMs),
  ]
}

function targetsOnPostgres({ postgresCalls, postgresIdle }: Results): readonly Target[] {
  const at = (gateways: number) =>
    postgresCalls.find((point) => point.gateways === gateways && point.connections === 64)
  const [one, four] = [at(1), at(4)]
  const target = (
    figure: string,
    unit: string,
    want: Wanted,
    reached: number | null | undefined,
  ): Target => ({
    ...{ figure: `PostgreSQL: ${figure}`, unit, wanted: want, reached: reached ?? undefined },
  })
  return [
    target('its CPU per call, c=64', 'µs', most(150, 100), one?.serverUs),
    target('its WAL per call, c=64', 'bytes', most(2_500), one?.walBytes),
    target(
      'its CPU per call with four gateways',
      '× with one',
      most(1.2, 1, 2),
      over(four?.serverUs, one?.serverUs),
    ),
    target('statements of an idle gateway', 'per s', most(6, undefined, 1), mostOf(postgresIdle)),
  ]
}

const mostOf = (idle: Results['postgresIdle']): number | undefined =>
  idle.length > 0 ? Math.max(...idle.map(({ most: asked }) => asked)) : undefined

function targetsOfRehearsals({
  engine,
  decisions,
  ...found
}: Results['rehearsals'][number]): readonly Target[] {
  if (decisions < 1_000_000) return []
  const target = (figure: string, ms: number, reached: number): Target => ({
    ...{ figure: `${figure}, ${engine}`, unit: 'ms', wanted: most(ms), reached },
  })
  return [
    target('rehearsal of 1,000,000 decisions', 3_000, found.wholeMs),
    target('preview of one principal, 30 days', 100, found.previewMs),
  ]
}

const of5M = (start: Results['fullStart']): Results['fullStart'] =>
  start && start.rows >= 5_000_000 ? start : null

const over = (a: number | null | undefined, b: number | null | undefined): number | undefined =>
  typeof a === 'number' && b ? a / b : undefined

const ms = (us: number | undefined): number | undefined => (us === undefined ? undefined : us / 1_000)

function less(
  [a, b]: readonly (Row | undefined)[],
  figure: 'p50' | 'p99' | 'firstP50' | 'cpuUs',
): number | undefined {
  const [more, base] = [a?.[figure] ?? null, b?.[figure] ?? null]
  return more === null || base === null ? undefined : more - base
}
