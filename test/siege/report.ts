import type { Figures } from './callers/tally.ts'
import type { Sample } from './figures.ts'
import type { Found, Judged } from './verdict.ts'

/** The heads of {@link progress}. */
export const PROGRESS_HEAD = line([
  's',
  'served',
  'failed',
  'p50',
  'p99',
  'max ms',
  'loop p99',
  'max ms',
  'MiB',
  'rows',
  'attacks',
])

/** Writes one sample as a line. */
export function progress({ at, attacks, honest, loop, rssMb, rows }: Sample): string {
  const { served, failed, p50, p99, longest } = honest
  const times = [p50, p99, longest, loop?.p99, loop?.longest, rssMb].map((ms) => ms?.toFixed(0) ?? '-')
  const [calls, memory] = [times.slice(0, 5), times.slice(5)]
  return line([at.toFixed(0), served, failed, ...calls, ...memory, rows, attacks.join(' + ') || 'none'])
}

/** Writes what a run found: kinds of calls, what failed, tries, and the judgement. */
export function report({ kinds, tries, seed }: Found, judged: readonly Judged[]): string {
  const calls = Object.entries(kinds).map(([name, { served, failed, p50, p99, longest }]) =>
    row([name, String(served), String(failed), p50.toFixed(1), p99.toFixed(1), longest.toFixed(0)]),
  )
  const tried = Object.entries(tries).map(([attack, count]) => `${attack} ${count}`)
  return [
    '',
    row(['honest calls', 'served', 'failed', 'p50 ms', 'p99 ms', 'max ms']),
    ...calls,
    ...faultsOf(kinds),
    '',
    `tries (seed ${seed}): ${tried.join(', ')}`,
    '',
    ...judged.map(({ what, holds, seen }) => `${WORDS[String(holds)]} ${what}: ${seen}`),
    '',
  ].join('\n')
}

const WORDS: Readonly<Record<string, string>> = { true: 'yes ', false: 'NO  ', null: '-   ' }

function faultsOf(kinds: Readonly<Record<string, Figures>>): readonly string[] {
  const faults = Object.values(kinds).flatMap((kind) => Object.entries(kind.faults))
  const most = faults.toSorted(([, a], [, b]) => b - a).slice(0, 10)
  return most.map(([fault, times]) => `  ${times} × ${fault}`)
}

function line(cells: readonly (string | number)[]): string {
  return cells.map((cell, i) => (i === cells.length - 1 ? `  ${cell}` : String(cell).padStart(8))).join('')
}

const row = ([first = '', ...rest]: readonly string[]): string =>
  first.padEnd(20) + rest.map((cell) => cell.padStart(10)).join('')
