import { setTimeout as wait } from 'node:timers/promises'
import type { AuditRow, LedgerPage } from '../../db/ledger/read/read.ts'
import { ocsfEvent } from '../../proxy/export/ocsf/event.ts'
import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'

const FORMATS = ['text', 'ndjson', 'ocsf'] as const
type TailFormat = (typeof FORMATS)[number]

const EVERY_MS = 1_000
/** The time that rows may come out of order: an outcome is as old as its answer. ms. */
const OVERLAP_MS = 600_000
/** The rows of a page, and the pages that one look reads. */
const [PAGE, MAX_PAGES] = [500, 20]
const MAX_LINES = 1_000

const isFormat = (text: string): text is TailFormat => FORMATS.some((one) => one === text)

function lineOf(row: AuditRow, format: TailFormat): string {
  if (format === 'ocsf') return JSON.stringify(ocsfEvent(row))
  if (format === 'ndjson') return JSON.stringify(row)
  const { reason } = row.detail
  const what = [row.tool ?? row.model, typeof reason === 'string' ? reason : null].filter(Boolean)
  const who = row.principal_name ?? row.principal_id ?? '-'
  return [row.recorded_at, `${row.stream}:${row.seq}`, who, row.action, row.status, ...what].join('  ')
}

/** The rows that were not shown yet, the oldest first. */
class UnseenRows {
  readonly #call: AdminCall
  #shown = new Set<string>()

  constructor(call: AdminCall) {
    this.#call = call
  }

  /** Reads the last rows. */
  async last(count: number): Promise<readonly AuditRow[]> {
    const { rows } = await this.#page({ limit: String(Math.max(count, 1)) })
    // Those before them are not shown later either.
    const { rows: known } = await this.#page({ limit: String(MAX_LINES) })
    this.#shown = new Set(known.map(keyOf))
    for (const row of rows) this.#shown.add(keyOf(row))
    return rows.slice(0, count).toReversed()
  }

  /** Reads page by page, until one has nothing new. */
  async next(): Promise<readonly AuditRow[]> {
    const since = new Date(Date.now() - OVERLAP_MS).toISOString()
    const found: AuditRow[] = []
    const seen = new Set<string>()
    let cursor: string | null = null
    for (let pages = 0; pages < MAX_PAGES; pages += 1) {
      const query = { limit: String(PAGE), since, ...(cursor !== null && { cursor }) }
      const { rows, next_cursor: next }: LedgerPage = await this.#page(query)
      const unseen = rows.filter((row) => !this.#shown.has(keyOf(row)))
      for (const row of rows) seen.add(keyOf(row))
      found.push(...unseen)
      if (next === null || unseen.length === 0) break
      cursor = next
    }
    // Rows of before the overlap are not asked for again.
    this.#shown = new Set([...this.#shown, ...seen].slice(-PAGE * MAX_PAGES * 2))
    return found.toReversed()
  }

  async #page(query: Readonly<Record<string, string>>): Promise<LedgerPage> {
    const path = `/v1/admin/audit?${new URLSearchParams({ ...query, archive: 'no' }).toString()}`
    return expectStatus<LedgerPage>(await this.#call('GET', path), 200)
  }
}

const keyOf = ({ stream, seq }: AuditRow): string => `${stream}:${seq}`

const follow = subcommandOf({
  takes: '',
  about: 'the last rows, and with --follow those that come',
  options: {
    format: { type: 'string', value: 'FORMAT', default: 'text', description: 'text, ndjson or ocsf' },
    lines: { type: 'string', value: 'N', default: '10', description: 'begin with the last N rows' },
    follow: { type: 'boolean', default: false, description: 'go on with rows that come, until it is ended' },
  },
  misuse: 'it takes no argument',
  check: ({ format, lines }) => {
    if (!isFormat(format)) throw new Error(`--format must be ${FORMATS.join(', ')}, got "${format}"`)
    if (!/^\d{1,4}$/.test(lines) || Number(lines) > MAX_LINES)
      throw new Error(`--lines must be 0 to ${MAX_LINES}, got "${lines}"`)
    return { format, lines: Number(lines) }
  },
  run: async ({ call, say, values, checked: { format, lines } }) => {
    const rows = new UnseenRows(call)
    const show = (some: readonly AuditRow[]): void => {
      if (some.length > 0) say(...some.map((row) => lineOf(row, format)))
    }
    show(await rows.last(lines))
    while (values.follow) {
      await wait(EVERY_MS)
      show(await rows.next())
    }
  },
})

export const verb = verbGroup({
  name: 'tail',
  about: `Shows the newest rows of the ledger. ${DOOR_NOTES}`,
  verbs: { show: follow },
  usual: 'show',
  notes: 'It demands admin.audit. docs/exports.md says what the formats are.',
})
