import { number, type Results } from '../results.ts'
import { table } from './table.ts'

/** Tables the ledger on PostgreSQL. */
export function reportPostgres({ postgres }: Results): string {
  if (postgres.length === 0) return 'not measured\n'
  return table(
    ['on PostgreSQL', 'processes', 'committers each', 'commits/s', 'p50 µs', 'p99 µs'],
    postgres.map(({ kind, processes, committers, perSecond, p50, p99 }) => [
      kind === 'row' ? 'a row' : 'a decision: assertion, claim, row',
      ...[processes, committers, perSecond, p50, p99].map((figure) => number(figure)),
    ]),
  )
}
