import { type ActivityTimes, timesOf } from './times.ts'

/** The query's names: the audit API's, and those of further members of a decision. */
const NAMES = [
  ...(['principal', 'action', 'status', 'reason', 'tool', 'model'] as const),
  ...(['since', 'until', 'window', 'cursor'] as const),
]
type ActivityFilter = Readonly<Partial<Record<(typeof NAMES)[number], string>>>

/** The path of the page with other words in its query; null takes a word away. */
export type ActivityHref = (changes: Readonly<Record<string, string | null>>) => string

export interface ActivityParams {
  readonly chosen: ActivityFilter
  readonly noise: boolean
  readonly times: ActivityTimes
  readonly here: ActivityHref
}

export function parseActivityParams(query: string): ActivityParams {
  const asked = new URLSearchParams(query)
  const times = timesOf(asked)
  const given = Object.fromEntries(
    NAMES.flatMap((name) => (asked.get(name) ? [[name, asked.get(name)]] : [])),
  )
  const { window: _, ...others }: ActivityFilter = given
  const chosen: ActivityFilter = { ...others, ...(times.window !== null && { window: times.window }) }
  const noise = asked.get('noise') === 'yes'
  return { chosen, noise, times, here: (changes) => queryOf(chosen, noise, changes) }
}

function queryOf(
  chosen: ActivityFilter,
  noise: boolean,
  changes: Readonly<Record<string, string | null>>,
): string {
  const next = new URLSearchParams({ ...chosen, ...(noise && { noise: 'yes' }) })
  for (const [name, value] of Object.entries(changes)) {
    if (value === null) next.delete(name)
    else next.set(name, value)
  }
  return `/proxy/activity?${next.toString()}`
}
