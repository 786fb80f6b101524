import type { Measured } from '../job.ts'
import { number, type Results } from '../results.ts'
import { optional, table } from './table.ts'

const ENGINES = { sqlite: 'SQLite', postgres: 'PostgreSQL' } as const
const CALLS = ['calls', 'calls/s', 'p50 µs', 'p99 µs', 'CPU µs/call']

/** Tables what the pages of the dashboard take, and calls beside them. */
export function reportDashboard({ dashboards }: Results): string {
  if (dashboards.length === 0) return 'not measured\n'
  return dashboards
    .flatMap(({ engine, decisions, agents, pages, calls, callsBeside, opened }) => [
      `${ENGINES[engine]}, ${number(decisions)} decisions, ${number(agents)} agents:\n`,
      table(
        ['page', 'first, ms', 'p50', 'slowest', 'CPU ms'],
        pages.map(({ page, firstMs, p50Ms, mostMs, cpuMs }) => [
          page,
          ...[firstMs, p50Ms, mostMs].map((ms) => number(ms)),
          optional(cpuMs),
        ]),
      ),
      table(CALLS, [callsOf('alone', calls), callsOf(`beside ${number(opened)} pages`, callsBeside)]),
    ])
    .join('\n')
}

/** Tables what sealing takes, and calls beside it. */
export function reportProofs({ proofs }: Results): string {
  if (proofs === null) return 'not measured\n'
  const { rows, seconds, cpuUs, beside, after, tree } = proofs
  return [
    `${number(rows)} rows were sealed in ${number(seconds)} s; ${cpuUs === null ? '–' : number(cpuUs, 1)} µs of the processor for each, with the calls.\n`,
    table(CALLS, [callsOf('beside sealing', beside), callsOf('when all is sealed', after)]),
    table(
      [
        'leaves',
        'grow, µs each',
        'tiles',
        'MiB',
        'edge, µs',
        'next 1,000, µs',
        'inclusion, µs',
        'consistency, µs',
      ],
      [
        [
          number(tree.leaves),
          number(tree.growUs, 2),
          number(tree.tiles),
          number(tree.bytes / 1_048_576),
          ...[tree.edgeUs, tree.appendUs, tree.inclusionUs, tree.consistencyUs].map((us) => number(us)),
        ],
      ],
    ),
  ].join('\n')
}

const callsOf = (name: string, { perSecond, p50, p99, cpuUs }: Measured): readonly string[] => [
  name,
  ...[perSecond, p50, p99].map((figure) => number(figure)),
  optional(cpuUs),
]
