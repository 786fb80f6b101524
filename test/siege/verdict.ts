import type { Figures } from './callers/tally.ts'
import type { Sample } from './figures.ts'
import type { LedgerFound } from './ledger.ts'

/** Everything that a run found. */
export interface Found {
  readonly seconds: number
  readonly seed: number
  readonly samples: readonly Sample[]
  readonly kinds: Readonly<Record<string, Figures>>
  /** The tries of each attack that had a turn. */
  readonly tries: Readonly<Record<string, number>>
  readonly ledger: LedgerFound
}

/** One thing that must hold. */
export interface Judged {
  readonly what: string
  /** Null: the run was too short to say. */
  readonly holds: boolean | null
  readonly seen: string
}

/** What of the honest calls may fail. */
const FAILED_AT_MOST = 0.001
/** What the gateway may grow by: a share of what it had, and MiB. */
const [GROWN_AT_MOST, ROOM_MB] = [0.2, 32]
/** The schedule of the archive is looked at once a minute, and a segment takes a while. s. */
export const ARCHIVED_AFTER_S = 120
/** A process that is younger than this still grows by what it compiles. s. */
const FLAT_AFTER_S = 300

/** Judges a run. `p99Ms`: the bound of honest calls. */
export function judge(found: Found, p99Ms: number): readonly Judged[] {
  const { ledger, tries } = found
  const { verdict, unbalanced, served, unrecorded } = ledger
  const idle = Object.keys(tries).filter((attack) => tries[attack] === 0)
  return [
    ...callersServed(found, p99Ms),
    flat(found),
    {
      what: 'the ledger is whole',
      holds: verdict.ok && ledger.faults.length === 0,
      seen: [`${verdict.rows} rows`, verdict.first_bad?.problem ?? '', ...ledger.faults].join(' '),
    },
    {
      what: 'old rows are archived meanwhile',
      holds: ledger.archived > 0 || (found.seconds < ARCHIVED_AFTER_S ? null : false),
      seen: `${ledger.archived} rows`,
    },
    {
      what: 'each allowed row has one outcome',
      holds: unbalanced === 0 && verdict.open_decisions === 0,
      seen: `${unbalanced} have not`,
    },
    {
      what: 'each honest answer is in the ledger',
      holds: unrecorded === 0,
      seen: `${served - unrecorded} of ${served}`,
    },
    {
      what: 'each attack was made',
      holds: idle.length === 0,
      seen: idle.join(', ') || `${Object.keys(tries).length} attacks`,
    },
  ]
}

function callersServed({ kinds }: Found, p99Ms: number): readonly Judged[] {
  const all = Object.values(kinds)
  const [served, failed] = [sum(all.map((kind) => kind.served)), sum(all.map((kind) => kind.failed))]
  const afterRevocation = sum(all.flatMap(({ faults }) => Object.entries(faults).map(servedAfterRevocation)))
  const slowest = Math.max(...all.filter((kind) => kind.served > 0).map((kind) => kind.p99))
  return [
    {
      what: 'honest callers are served',
      holds: served > 0 && failed <= FAILED_AT_MOST * (served + failed),
      seen: `${failed} of ${served + failed} calls failed`,
    },
    {
      what: 'none is served after its revocation',
      holds: afterRevocation === 0,
      seen: `${afterRevocation} were`,
    },
    {
      what: `p99 of each kind is at most ${p99Ms} ms`,
      holds: slowest <= p99Ms,
      seen: `${slowest.toFixed(0)} ms`,
    },
  ]
}

const servedAfterRevocation = ([fault, times]: [string, number]): number =>
  fault.includes('SERVED AFTER REVOCATION') ? times : 0

function flat({ samples, seconds }: Found): Judged {
  const what = 'memory is flat'
  const settled = samples.slice(Math.ceil(samples.length / 5)).flatMap(({ rssMb }) => rssMb ?? [])
  const third = Math.floor(settled.length / 3)
  if (third === 0 || seconds < FLAT_AFTER_S) return { what, holds: null, seen: 'too short a run' }
  const [first, last] = [median(settled.slice(0, third)), median(settled.slice(-third))]
  return {
    what,
    holds: last <= first * (1 + GROWN_AT_MOST) + ROOM_MB,
    seen: `${first.toFixed(0)} MiB, then ${last.toFixed(0)} MiB, ${Math.max(...settled).toFixed(0)} at most`,
  }
}

const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
