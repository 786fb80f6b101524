import type { Measured } from '../job.ts'
import { ceilingOf, number, type Results } from '../results.ts'
import { tableOfRecords } from './table.ts'
import { reportTargets } from './targets.ts'

/** The sections of a report: a heading, and the records of its table. */
const SECTIONS: readonly (readonly [heading: string, records: (results: Results) => readonly object[]])[] = [
  ['Beside another version, in turn', withRatios],
  ['Heap and disk', ({ costs }) => costs],
  ['Points', ({ rows }) => rows],
  ['Bare ES256 verification', ({ es256 }) => present(es256)],
  ['The ledger', ({ ledger }) => ledger],
  ['A row of a call', ({ callCost }) => present(callCost)],
  ['Limits', ({ limits }) => limits],
  ['A translated event', ({ toldEvents }) => toldEvents],
  ['The ledger on PostgreSQL', ({ postgres }) => postgres],
  ['Whole calls on PostgreSQL', ({ postgresCalls }) => postgresCalls],
  ['Idle gateways on PostgreSQL', ({ postgresIdle }) => postgresIdle],
  ['Start', ({ startUp, fullStart }) => [...present(startUp), ...present(fullStart)]],
  ['Rehearsals', ({ rehearsals }) => rehearsals],
  ['The dashboard', ({ dashboards }) => dashboards],
  ['Streams', ({ streams }) => streams],
  ['Proofs', ({ proofs }) => present(proofs)],
  ['The record after kill -9', ({ fault }) => present(fault)],
]

const present = <T extends object>(one: T | null): readonly T[] => (one === null ? [] : [one])

/** Writes a run as Markdown that also reads well on a terminal: a table for each kind of figure, then the targets. */
export function report(results: Results): string {
  return [
    conditions(results),
    ...SECTIONS.flatMap(([heading, records]) => [`### ${heading}\n`, tableOfRecords(records(results))]),
    '### Targets\n',
    reportTargets(results),
  ].join('\n')
}

function withRatios({ pairs }: Results): readonly object[] {
  const over = (own: number | null, other: number | null) => (own && other ? own / other : null)
  return pairs.map(({ point, connections, own, other }) => ({
    ...{ point, connections },
    '× req/s': over(own.perSecond, other.perSecond),
    '× CPU': over(own.cpuUs, other.cpuUs),
    own: figuresOf(own),
    other: figuresOf(other),
  }))
}

const figuresOf = ({ perSecond, cpuUs, p50, p99, errors }: Measured) => ({
  perSecond,
  cpuUs,
  p50,
  p99,
  errors,
})

function conditions({ conditions: c, rows, other }: Results): string {
  const ceiling = ceilingOf(rows)
  const lines = [
    `${c.at}, ${c.cores} × ${c.processor}, Node ${c.node}.`,
    `${c.seconds} s per point after ${c.warmupS} s, ${c.rounds === 1 ? 'one round' : `medians of ${c.rounds} rounds`}; ` +
      `load average before: ${number(c.loadBefore, 1)}.`,
    c.pinned
      ? 'The measured process has core 0; generator and upstream share core 1.'
      : 'NOT PINNED: no taskset or one core; the figures below are of no use for comparison.',
    `Servers of others: ${c.peers.map(({ name, version }) => `${name} ${version ?? '(not installed)'}`).join(', ')}.`,
    ...(other === null ? [] : [`"other" is ${other}.`]),
    ...(ceiling === undefined ? [] : [`The generator reaches ${number(ceiling)} req/s on raw node:tls.`]),
    'Times are µs unless the name says ms. Where generatorBusy is near 1, the server can do more.',
  ]
  return `${lines.join('\n')}\n`
}
