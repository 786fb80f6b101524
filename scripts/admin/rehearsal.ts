import type { Rehearsal } from '../../proxy/admin/conditions/rehearsed.ts'
import { alignColumns } from '../print.ts'
import { type AdminCall, expectStatus } from './call.ts'
import type { PrintLines } from './subcommand.ts'

type RehearsalPile = Rehearsal['newly_refused'][number]

export const REHEARSE_OPTION = {
  rehearse: {
    type: 'boolean',
    default: false,
    description: 'change nothing: show what it would have done to the calls of the last 30 days',
  },
} as const

/** Rehearses changes. `since`: RFC 3339; absent: 30 days ago. */
export const rehearseChanges = async (
  call: AdminCall,
  changes: readonly object[],
  since?: string,
): Promise<Rehearsal> =>
  expectStatus(
    await call('POST', '/v1/admin/rehearsals', { changes, ...(since !== undefined && { since }) }),
    200,
  )

/** Says what a rehearsal has found. */
export function rehearsalLines(found: Rehearsal): readonly string[] {
  const {
    window,
    unchanged,
    newly_refused: refused,
    newly_allowed: allowed,
    undecidable,
    disagreements,
    newly_held: held,
  } = found
  const { decisions, principals, since, until } = window
  return [
    `${decisions} decisions of ${principals} principal${principals === 1 ? '' : 's'}, ${since} to ${until}: ${unchanged} as they were`,
    ...pileLines(`would be refused: ${found.totals.newly_refused}`, refused),
    ...(held ? [heldLine(held)] : []),
    ...pileLines(`would be allowed, of those that were tried: ${found.totals.newly_allowed}`, allowed),
    ...undecidable.map(({ why, decisions: count }) => `cannot be decided: ${count}, ${why}`),
    ...(disagreements > 0 ? [`recorded decisions that do not follow from the ledger: ${disagreements}`] : []),
    ...(found.truncated ? ['more kinds of calls than are shown'] : []),
    `rehearsal ${found.id}`,
  ]
}

const heldLine = ({
  days,
  per_day: each,
  most_per_day: most,
}: NonNullable<Rehearsal['newly_held']>): string =>
  `somebody would be asked to approve ${each} calls a day, ${most} at the most (on ${days} of the days)`

/** Says what a change would have done, and makes none. */
export async function sayRehearsed(call: AdminCall, say: PrintLines, change: object): Promise<void> {
  say(...rehearsalLines(await rehearseChanges(call, [change])), 'nothing is changed')
}

function pileLines(title: string, groups: readonly RehearsalPile[]): readonly string[] {
  if (groups.length === 0) return [title]
  const rows = groups.map((one) => [
    one.principal_id ?? '',
    one.tool ?? one.model ?? one.action,
    one.capability ?? one.reason,
    String(one.decisions),
    one.first_at,
    one.last_at,
  ])
  const titles = ['WHO', 'AT', 'LACKS', 'CALLS', 'SINCE', 'LAST']
  return [title, ...alignColumns([titles, ...rows]).map((line) => `  ${line}`)]
}
