import { number, type Results } from '../results.ts'
import { table } from './table.ts'

/** Tables what is left of the record after the gateway was killed under load. */
export function reportFault({ fault }: Results): string {
  if (!fault) return 'not measured\n'
  const { kills, sent, acknowledged, unrecorded, reached, allowed, rows, badRow, unbalanced } = fault
  return table(
    [`kill -9 under load, ${kills} times`, 'found', 'what'],
    [
      ['calls sent, 64 at a time', number(sent), ''],
      ['answers that callers got', number(acknowledged), ''],
      ['of these not in the ledger as allowed', number(unrecorded), 'must be 0'],
      ['calls that reached the upstream', number(reached), ''],
      ['decisions that allowed one', number(allowed), 'must not be fewer'],
      ['rows of the ledger, verified', number(rows), badRow ?? 'all of them whole'],
      ['decisions without exactly one outcome', number(unbalanced), 'must be 0'],
      ['outcomes unknown: under way at a kill', number(fault.unknown), 'written at the next start'],
      ['ready again, ms', number(fault.readyMs), 'the slowest start'],
    ],
  )
}
