import { ceilingOf, number, type Results, rowOf, targetsOf } from './results.ts'
import type { Row } from './run.ts'
import { BARE_PROXY, CEILING_SERVER, DIRECT, subjects } from './subjects.ts'

/** A point of the generator that used its own core so far measures the generator. */
const BUSY = 0.9

/** A run as Markdown tables that also read well on a terminal. */
export function report(results: Results): string {
  return [
    conditions(results),
    '### The ladder: one core, JSON\n',
    ladder(results),
    '### Proxying: streams, and what is added to the upstream\n',
    streams(results),
    added(results),
    '### Refusals\n',
    refusals(results),
    '### Ledger, memory, event loop, start\n',
    ledger(results),
    resources(results),
    '### Targets\n',
    targets(results),
  ].join('\n')
}

function conditions({ conditions: c, rows }: Results): string {
  const ceiling = ceilingOf(rows)
  const lines = [
    `${c.at}, ${c.cores} × ${c.processor}, Node ${c.node}, nginx: ${c.nginx ?? 'not installed, skipped'}.`,
    `${c.seconds} s per point after ${c.warmupS} s, ${c.rounds === 1 ? 'one round' : `medians of ${c.rounds} rounds`}; ` +
      `load average before: ${number(c.loadBefore, 1)}.`,
    c.pinned
      ? 'The measured process has core 0; generator and upstream share core 1.'
      : 'NOT PINNED: no taskset or one core; the figures below are of no use for comparison.',
    ...(ceiling === undefined ? [] : [`The generator reaches ${number(ceiling)} req/s on raw node:tls.`]),
    '\\* the generator had no time left: the server can do more.',
  ]
  return `${lines.join('\n')}\n`
}

function ladder({ rows }: Results): string {
  const order = ['node:https', 'pin', 'capability', 'audit', 'gateway', BARE_PROXY, 'nginx', CEILING_SERVER]
  const found = order.flatMap((server) => rows.filter((row) => row.server === server && row.point === 'json'))
  return table(
    [...HEADINGS, '× http-proxy-3', 'what'],
    found.map((row) => {
      const bare = rowOf(rows, { server: BARE_PROXY, point: 'json', connections: row.connections })
      const what = subjects().find(({ name }) => name === row.server)?.what ?? ''
      return [...cells(row), bare ? number(row.perSecond / bare.perSecond, 2) : '–', what]
    }),
  )
}

const HEADINGS = ['server', 'c', 'req/s', 'p50 µs', 'p99 µs', 'CPU µs/req', 'core %', 'RSS MiB']

function cells(row: Row): string[] {
  return [
    row.server,
    String(row.connections),
    perSecond(row),
    number(row.p50),
    number(row.p99),
    optional(row.cpuUs),
    row.cpuUs === null ? '–' : number((row.cpuUs * row.perSecond) / 10_000),
    optional(row.rssMb),
  ]
}

const perSecond = (row: Row): string =>
  number(row.perSecond) +
  (row.generatorBusy > BUSY ? '\\*' : '') +
  (row.errors > 0 ? ` (${row.errors} errors)` : '')

const optional = (value: number | null): string => (value === null ? '–' : number(value))

function streams({ rows }: Results): string {
  const bare = rowOf(rows, { server: BARE_PROXY, point: 'burst' })
  return table(
    [
      '100 events in a burst',
      'c',
      'answers/s',
      'p50 µs',
      'p99 µs',
      'CPU µs/answer',
      'core %',
      '× http-proxy-3',
    ],
    rows
      .filter(({ point }) => point === 'burst')
      .map((row) => [...cells(row).slice(0, -1), bare ? number(row.perSecond / bare.perSecond, 2) : '–']),
  )
}

function added({ rows }: Results): string {
  const direct = rowOf(rows, { server: DIRECT, point: 'half load' })
  const paced = rowOf(rows, { server: DIRECT, point: 'paced' })
  const servers = [...new Set(rows.filter(({ point }) => point === 'half load').map(({ server }) => server))]
  return table(
    [
      'open loop',
      'rate/s',
      'p50 µs',
      'p99 µs',
      'added p50',
      'added p99',
      'first byte p50',
      'p99',
      'added p50',
      'added p99',
    ],
    servers.map((server) => {
      const half = rowOf(rows, { server, point: 'half load' })
      const first = rowOf(rows, { server, point: 'paced' })
      return [
        server,
        ...(half ? [number(half.perSecond), number(half.p50), number(half.p99)] : ['–', '–', '–']),
        ...differences(half && direct && [half.p50 - direct.p50, half.p99 - direct.p99]),
        ...(first ? [number(first.firstP50), number(first.firstP99)] : ['–', '–']),
        ...differences(first && paced && [first.firstP50 - paced.firstP50, first.firstP99 - paced.firstP99]),
      ]
    }),
  )
}

const differences = (values: readonly [number, number] | undefined): string[] =>
  values ? values.map((value) => number(value)) : ['–', '–']

const REFUSAL_NAMES: Readonly<Record<string, string>> = {
  denied: 'no capability: 403, a durable row',
  'wrong type': 'content-type text/plain: 400, a durable row',
  'no certificate': 'no certificate: 401, a handshake each',
  'bad framing': 'two Host headers: 400, a handshake each',
  handshakes: 'for comparison: raw node:tls, a handshake each',
}

function refusals({ rows }: Results): string {
  return table(
    ['refused', ...HEADINGS.slice(1)],
    rows
      .filter(({ point }) => point in REFUSAL_NAMES)
      .map((row) => [REFUSAL_NAMES[row.point] ?? '', ...cells(row).slice(1)]),
  )
}

function ledger({ ledger: points }: Results): string {
  return table(
    ['committers', 'rows/s', 'p50 µs', 'p99 µs', 'CPU µs/row'],
    points.map((point) => [
      String(point.committers),
      number(point.rowsPerSecond),
      number(point.p50),
      number(point.p99),
      number(point.cpuUs),
    ]),
  )
}

function resources({ rows, startUp }: Results): string {
  const gateway = rows.filter(({ loopP99Ms }) => loopP99Ms !== null)
  const loops = table(
    ['gateway under', 'c', 'RSS MiB', 'event loop p99 ms'],
    gateway.map((row) => [
      row.point,
      String(row.connections),
      optional(row.rssMb),
      row.loopP99Ms === null ? '–' : number(row.loopP99Ms, 1),
    ]),
  )
  if (!startUp) return loops
  const { readyMs, rows: count, rssMb } = startUp
  return `${loops}\nReady after ${number(readyMs)} ms on a data directory with ${number(count)} ledger rows; ${optional(rssMb)} MiB resident then.\n`
}

function targets(results: Results): string {
  return table(
    ['figure', 'target', 'reached', 'met'],
    targetsOf(results).map(({ figure, target, reached, met }) => [
      figure,
      target,
      reached,
      met === null ? '–' : met ? 'yes' : 'NO',
    ]),
  )
}

/** Empty where there is nothing to show. The first column is text, the others are figures. */
function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return 'not measured\n'
  const widths = headings.map((heading, i) =>
    Math.max(heading.length, ...rows.map((row) => (row[i] ?? '').length)),
  )
  const isText = (i: number): boolean => i === 0 || headings[i] === 'what'
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, i) => (isText(i) ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join(' | ')} |`
  const rule = `|${widths.map((width, i) => (isText(i) ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`
  return `${[line(headings), rule, ...rows.map(line)].join('\n')}\n`
}
