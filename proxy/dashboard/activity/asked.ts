const DAY_MS = 86_400_000

/** The windows that one click chooses: they end now, and move on with it. ms. */
export const WINDOWS = { '1h': DAY_MS / 24, '24h': DAY_MS, '7d': 7 * DAY_MS, '30d': 30 * DAY_MS } as const
export type WindowName = keyof typeof WINDOWS

export interface ActivityTimes {
  readonly typed: { readonly since: string; readonly until: string }
  readonly window: WindowName | null
  /** ms since the epoch. Null: open at that side. A window that moves has both open. */
  readonly since: number | null
  readonly until: number | null
  /** The fault of each typed text, as half a sentence; null if there is none. */
  readonly problems: { readonly since: string | null; readonly until: string | null }
}

/** Reads the times of a query. Typed times count if a window is named too. */
function timesOf(asked: URLSearchParams): ActivityTimes {
  const typed = { since: asked.get('since') ?? '', until: asked.get('until') ?? '' }
  const [since, until] = [instantOf(typed.since), instantOf(typed.until)]
  const [from, to] = [typed.since === '' ? null : since, typed.until === '' ? null : until]
  const isAbsolute = typed.since !== '' || typed.until !== ''
  const name = asked.get('window') ?? ''
  return {
    typed,
    window: !isAbsolute && isWindow(name) ? name : null,
    since: from,
    until: to,
    problems: {
      since: typed.since !== '' && since === null ? INSTANT_FORM : null,
      until: untilProblem(typed.until, from, to),
    },
  }
}

export const INSTANT_FORM =
  'is not a date and time, such as 2026-11-22, 2026-11-22 14:30 or 2026-11-22T14:30:00Z'

function untilProblem(typed: string, since: number | null, until: number | null): string | null {
  if (typed === '') return null
  if (until === null) return INSTANT_FORM
  return since !== null && until <= since ? 'is not later than the start' : null
}

const isWindow = (name: string): name is WindowName => Object.hasOwn(WINDOWS, name)

const INSTANT =
  /^(?<date>\d{4}-\d\d-\d\d)(?:[T ](?<time>\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?) ?(?<zone>Z|[+-]\d\d:\d\d)?)?$/i

/** RFC 3339, and less of it: a date alone, no seconds, no zone, which is UTC then. Null: no such instant. */
export function instantOf(typed: string): number | null {
  const { date, time = '00:00', zone = 'Z' } = INSTANT.exec(typed.trim())?.groups ?? {}
  if (date === undefined) return null
  const at = Date.parse(`${date}T${time}${zone.toUpperCase()}`)
  const day = Date.parse(`${date}T00:00Z`)
  // The 31st of a month that has none becomes another day.
  const isThere = !Number.isNaN(day) && new Date(day).toISOString().startsWith(date)
  return isThere && !Number.isNaN(at) ? at : null
}

const NAMES = [
  ...(['principal', 'action', 'status', 'reason', 'tool', 'model'] as const),
  ...(['since', 'until', 'window', 'cursor'] as const),
]
const KNOWN: ReadonlySet<string> = new Set([...NAMES, 'noise', 'notice'])
type ActivityFilter = Readonly<Partial<Record<(typeof NAMES)[number], string>>>

/** The path of the page with other words in its query; null takes a word away. */
export type ActivityHref = (changes: Readonly<Record<string, string | null>>) => string

export interface ActivityParams {
  /** The names in the query that are no filter, and a window that is none. */
  readonly unknown: readonly string[]
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
  const unknown = [
    ...new Set([...asked.keys()].filter((name) => !KNOWN.has(name))),
    ...(asked.get('window') && !isWindow(asked.get('window') ?? '')
      ? [`window=${asked.get('window') ?? ''}`]
      : []),
  ]
  return { unknown, chosen, noise, times, here: (changes) => queryOf(chosen, noise, changes) }
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
