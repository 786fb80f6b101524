import type { Cost } from '../costs.ts'
import type { Pair } from '../pairs.ts'
import { number, type Results } from '../results.ts'
import { GATEWAY } from '../subjects.ts'
import { table } from './table.ts'

/** Tables this gateway beside that of another checkout, asked in turn. */
export function reportPairs({ pairs, other }: Results): string {
  return table(
    [
      `this gateway and ${other ?? 'another'}`,
      'c',
      'req/s',
      'of the other',
      '×',
      'CPU µs/req',
      'of the other',
      '×',
      'p50 µs',
      'of the other',
      'p99 µs',
      'of the other',
    ],
    pairs.map(({ point, connections, own, other: theirs }) => [
      point,
      String(connections),
      ...beside(own.perSecond, theirs.perSecond),
      ...beside(own.cpuUs, theirs.cpuUs),
      number(own.p50),
      number(theirs.p50),
      number(own.p99),
      number(theirs.p99) + errorsOf({ own, other: theirs }),
    ]),
  )
}

/** Two figures and their ratio. */
const beside = (own: number | null, other: number | null): readonly string[] =>
  own === null || other === null ? ['–', '–', '–'] : [number(own), number(other), number(own / other, 2)]

const errorsOf = ({ own, other }: Pick<Pair, 'own' | 'other'>): string =>
  own.errors + other.errors === 0 ? '' : ` (${own.errors} and ${other.errors} errors)`

/** Tables what a call takes of heap and disk. */
export function reportCosts({ costs }: Results): string {
  return table(
    [
      'per call',
      'c',
      'heap KB, event loop',
      'other threads',
      'collector’s pauses µs',
      'rows',
      'database bytes',
      'log bytes',
    ],
    costs.map((cost) => [
      `${cost.point}${cost.server === GATEWAY ? '' : `, ${cost.server}`}`,
      String(cost.connections),
      number(kbOf(cost.loopBytes), 1),
      number(kbOf(cost.threadsBytes), 1),
      number(cost.pausesUs, 1),
      number(cost.rows, 1),
      number(cost.fileBytes),
      number(cost.logBytes),
    ]),
  )
}

/** All threads' heap that a call takes. KB of 1,000 bytes. */
export const heapKbOf = ({ loopBytes, threadsBytes }: Cost): number => kbOf(loopBytes + threadsBytes)

const kbOf = (bytes: number): number => bytes / 1_000
