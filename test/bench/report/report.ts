import { PEERS } from '../ground/peers/peers.ts'
import { ceilingOf, number, type Results } from '../results.ts'
import type { Row } from '../row.ts'
import { rowOf } from '../row.ts'
import type { StartUp } from '../start-up.ts'
import {
  BARE_PROXY,
  CEILING_SERVER,
  DIRECT,
  DPOP_RUNG,
  GATEWAY,
  GATEWAY_REQUIRED,
  subjects,
} from '../subjects.ts'
import { reportCosts, reportPairs } from './copies.ts'
import { reportDpop } from './dpop.ts'
import { reportFault } from './fault.ts'
import { reportDashboard, reportProofs } from './filled.ts'
import { reportMcp } from './mcp.ts'
import { reportPostgres } from './postgres.ts'
import { reportRehearsals } from './rehearsals.ts'
import { reportRungs } from './rungs.ts'
import { cells, HEADINGS, optional, table } from './table.ts'
import { reportTargets } from './targets.ts'

/** Writes a run as Markdown tables that also read well on a terminal. */
export function report(results: Results): string {
  return [
    conditions(results),
    '### Beside another version, in turn\n',
    reportPairs(results),
    '### Heap and disk\n',
    reportCosts(results),
    '### The ladder: one core, JSON\n',
    ladder(results),
    '### What each rung of security costs\n',
    reportRungs(results),
    '### Proxying: streams, and what is added to the upstream\n',
    streams(results),
    added(results),
    '### DPoP: a fresh proof on each request\n',
    reportDpop(results),
    '### MCP: tools/call\n',
    reportMcp(results),
    '### Refusals\n',
    refusals(results),
    '### Ledger, memory, event loop, start\n',
    ledger(results),
    resources(results),
    '### The ledger on PostgreSQL\n',
    reportPostgres(results),
    '### Rehearsals\n',
    reportRehearsals(results),
    '### The dashboard\n',
    reportDashboard(results),
    '### Proofs\n',
    reportProofs(results),
    '### The record after kill -9\n',
    reportFault(results),
    '### Targets\n',
    reportTargets(results),
  ].join('\n')
}

function conditions({ conditions: c, rows }: Results): string {
  const ceiling = ceilingOf(rows)
  const lines = [
    `${c.at}, ${c.cores} × ${c.processor}, Node ${c.node}.`,
    `${c.seconds} s per point after ${c.warmupS} s, ${c.rounds === 1 ? 'one round' : `medians of ${c.rounds} rounds`}; ` +
      `load average before: ${number(c.loadBefore, 1)}.`,
    c.pinned
      ? 'The measured process has core 0; generator and upstream share core 1.'
      : 'NOT PINNED: no taskset or one core; the figures below are of no use for comparison.',
    `Beside it: ${c.peers.map(({ name, version }) => `${name} ${version ?? '(not installed)'}`).join(', ')}.`,
    ...(ceiling === undefined ? [] : [`The generator reaches ${number(ceiling)} req/s on raw node:tls.`]),
    '\\* the generator had no time left: the server can do more.',
  ]
  return `${lines.join('\n')}\n`
}

function ladder({ rows }: Results): string {
  const bareAt = (connections: number): Row | undefined =>
    rowOf(rows, { server: BARE_PROXY, point: 'json', connections })
  return table(
    [...HEADINGS, '× http-proxy-3', 'what'],
    RUNGS.flatMap(({ server, point, label, what }) =>
      rows
        .filter((row) => row.server === server && row.point === point)
        .map((row) => {
          const bare = bareAt(row.connections)
          const [, ...figures] = cells(row)
          return [label, ...figures, bare ? number(row.perSecond / bare.perSecond, 2) : '–', what]
        }),
    ),
  )
}

const rung = (server: string, point = 'json', label = server, what = whatIs(server)) => ({
  server,
  point,
  label,
  what,
})

/** The rungs in the order of the ladder, then the servers that it is compared with. */
const RUNGS = [
  rung('node:https'),
  rung('pin'),
  rung('capability'),
  rung('audit'),
  rung(DPOP_RUNG, 'DPoP'),
  rung(GATEWAY),
  rung(GATEWAY, 'DPoP', `${GATEWAY} + DPoP`, 'the whole gateway, a fresh proof each'),
  rung(BARE_PROXY),
  ...PEERS.filter(({ serves }) => serves !== 'mcp').map(({ name }) => rung(name)),
  rung(CEILING_SERVER),
]

function whatIs(server: string): string {
  return subjects().find(({ name }) => name === server)?.what ?? ''
}

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
  const direct = rowOf(rows, { server: DIRECT, point: 'half core' })
  const paced = rowOf(rows, { server: DIRECT, point: 'paced' })
  const servers = [...new Set(rows.filter(({ point }) => point === 'half core').map(({ server }) => server))]
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
      const half = rowOf(rows, { server, point: 'half core' })
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
  'oversized proof': 'DPoP proof too long: 401, a durable row',
  'other typ': 'DPoP proof of another typ: 401, a durable row',
  'stale iat': 'DPoP proof an hour old: 401, a durable row',
  'bad signature': 'DPoP proof with a bad signature: 401, a durable row',
  'replayed proof': 'DPoP proof sent before: 401, a durable row',
  'no certificate': 'no certificate: 401, closed, so a handshake each',
  'bad framing': 'two Host headers: 400, closed, so a handshake each',
  handshakes: 'for comparison: raw node:tls, a handshake each',
}

function refusals({ rows }: Results): string {
  return table(
    ['refused', ...HEADINGS.slice(1)],
    // In the order of the names, so that what closes its connection stands together.
    Object.entries(REFUSAL_NAMES).flatMap(([point, name]) =>
      rows.filter((row) => row.point === point).map((row) => [name, ...cells(row).slice(1)]),
    ),
  )
}

function ledger({ ledger: points, callCost }: Results): string {
  const rows = table(
    ['committers', 'rows/s', 'p50 µs', 'p99 µs', 'CPU µs/row', 'its thread’s'],
    points.map((point) => [
      String(point.committers),
      number(point.rowsPerSecond),
      number(point.p50),
      number(point.p99),
      number(point.cpuUs),
      optional(point.writerUs),
    ]),
  )
  if (callCost === null) return rows
  const { storedPerRow, loggedPerRow, decisionUs } = callCost
  return (
    `${rows}\nA row of a call, 64 callers: ${number(storedPerRow)} bytes in the database, indexes included, ` +
    `${number(loggedPerRow)} in the log. A call has two. Its decision row takes ${number(decisionUs, 1)} µs to make.\n`
  )
}

function resources({ rows, startUp, fullStart }: Results): string {
  const gateway = rows.filter(({ loopP99Ms }) => loopP99Ms !== null)
  const loops = table(
    ['gateway under', 'c', 'RSS MiB', 'event loop p99 ms'],
    gateway.map((row) => [
      row.server === GATEWAY_REQUIRED ? `${row.point}, required` : row.point,
      String(row.connections),
      optional(row.rssMb),
      row.loopP99Ms === null ? '–' : number(row.loopP99Ms, 1),
    ]),
  )
  return [loops, ...[startUp, fullStart].flatMap((start) => (start ? [started(start)] : []))].join('\n')
}

const started = ({ readyMs, rows, rssMb }: StartUp): string =>
  `Ready after ${number(readyMs)} ms on a data directory with ${number(rows)} ledger rows; ${optional(rssMb)} MiB resident then.\n`
