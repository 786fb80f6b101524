import type { CallsBeside } from '../rehearsals.ts'
import { number, type Results } from '../results.ts'
import { optional, table } from './table.ts'

const ENGINES = { sqlite: 'SQLite', postgres: 'PostgreSQL' } as const

/** Tables what rehearsals take, and what calls take beside them. */
export function reportRehearsals({ rehearsals }: Results): string {
  if (rehearsals.length === 0) return 'not measured\n'
  const [times, calls] = [rehearsals.map(timesOf), rehearsals.flatMap(callsOf)]
  return [
    table(
      [
        'rehearsal on',
        'decisions',
        'everybody, ms',
        'CPU ms',
        'memory, + MiB',
        'first preview, ms',
        'preview, ms',
      ],
      times,
    ),
    table(['calls on', 'calls/s', 'p50 µs', 'p99 µs', 'everybody, ms'], calls),
  ].join('\n')
}

type Found = Results['rehearsals'][number]

const timesOf = (found: Found): readonly string[] => [
  ENGINES[found.engine],
  number(found.decisions),
  number(found.wholeMs),
  optional(found.wholeCpuMs),
  optional(found.grownMb),
  number(found.firstPreviewMs),
  number(found.previewMs),
]

const callsOf = ({ engine, calls, callsBeside, besideMs }: Found): readonly (readonly string[])[] => [
  [ENGINES[engine], ...figuresOf(calls), '–'],
  [`${ENGINES[engine]}, beside rehearsals`, ...figuresOf(callsBeside), number(besideMs)],
]

const figuresOf = ({ perSecond, p50, p99 }: CallsBeside): readonly string[] =>
  [perSecond, p50, p99].map((figure) => number(figure))
