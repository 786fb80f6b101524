import { z } from 'zod'
import type { CountLevel, SpanCount } from '../../../db/ledger/counts/row-counts.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { readOperation } from '../operation/operation.ts'
import { instant } from '../operation/shapes.ts'
import { parseLedgerPage, throwLedgerRefusal } from './audit.ts'

const [TEN_MINUTES_MS, DAY_MS] = [600_000, 86_400_000]
const DAYS = 30
/** The rows that are looked through, those of failed calls that are read, and the spans that they are read in. */
const [MAX_LOOKED, MAX_READ, MAX_SPANS] = [20_000, 500, 48]
const [MAX_KINDS, MAX_CALLERS] = [50, 5]
/** A call that is refused so has been allowed before: its outcome is this. */
const FAILED = { action: 'egress_llm_chat', status: 'error' } as const

const lossyCaller = z.strictObject({
  principal: z.string().nullable(),
  principal_type: z.string().nullable(),
})

const refusedLoss = z.strictObject({
  loss: z.string(),
  model: z.string().nullable(),
  count: z.int().meta({ description: 'Refused calls. One with several losses counts for each of them.' }),
  callers: z.array(lossyCaller).meta({ description: 'At most five, the newest first.' }),
  more_callers: z.int(),
  last: instant,
  request_id: z.string().nullable().meta({ description: 'Of the last one.' }),
})

type RefusedLoss = z.output<typeof refusedLoss>

/** Lists the losses by which calls were refused, by their model. For the page of providers; no route has it. */
export const listRefusedLosses = readOperation({
  name: 'listRefusedLosses',
  demands: 'admin.audit',
  summary:
    'Lists the losses of the last 30 days by which calls were refused that cannot be translated whole.',
  takes: {},
  output: z.strictObject({
    losses: z.array(refusedLoss),
    since: instant.meta({ description: 'The instant back to which the ledger was looked through.' }),
    more: z.boolean().meta({ description: 'True: there may be earlier ones, or more kinds.' }),
  }),
  run: async (context, _input, caller) => {
    const first = caller.at - DAYS * DAY_MS
    const rows: AuditRow[] = []
    let [looked, spans, since] = [0, 0, first]
    let isCut = false
    for await (const span of failedSpans(context, caller, first)) {
      isCut = looked + span.rows > MAX_LOOKED && spans > 0
      if (isCut || rows.length >= MAX_READ || spans === MAX_SPANS) {
        isCut = true
        since = span.until
        break
      }
      looked += span.rows
      spans += 1
      rows.push(
        ...(await failedRows(context, caller, { since: Math.max(span.since, first), until: span.until })),
      )
    }
    const kinds = lossKinds(rows)
    const losses = kinds.slice(0, MAX_KINDS)
    const more = isCut || kinds.length > MAX_KINDS
    return { value: { losses, since: new Date(since).toISOString(), more } }
  },
})

interface FailedSpan {
  /** ms since the epoch. */
  readonly since: number
  readonly until: number
  /** Rows of any kind that are in it. */
  readonly rows: number
}

/** Finds ten minutes each in which calls have failed, the newest first, by the counts of rows. */
async function* failedSpans(
  context: AdminContext,
  caller: AdminCaller,
  first: number,
): AsyncGenerator<FailedSpan> {
  const count = async (level: CountLevel, since: number, until: number) => {
    const window = { level, since: spanAt(since, level), until: spanAt(until, level) }
    const { counts } = await context.ledgerPlaces.run('pages', caller, () =>
      context.database.rowCounts.within(window, caller.hangup.signal).catch(throwLedgerRefusal),
    )
    return newestFailed(counts)
  }
  const tomorrow = (Math.floor(caller.at / DAY_MS) + 1) * DAY_MS
  for (const [day] of await count(10, first, tomorrow)) {
    const begin = Date.parse(`${day}T00:00Z`)
    for (const [span, rows] of await count(15, begin, begin + DAY_MS)) {
      const since = Date.parse(`${span}0Z`)
      if (since + TEN_MINUTES_MS > first) yield { since, until: since + TEN_MINUTES_MS, rows }
    }
  }
}

const spanAt = (at: number, level: CountLevel): string => new Date(at).toISOString().slice(0, level)

/** Returns the spans in which calls have failed, and how many rows each has. */
function newestFailed(counts: readonly SpanCount[]): readonly (readonly [span: string, rows: number])[] {
  const rows = new Map<string, number>()
  for (const one of counts) rows.set(one.span, (rows.get(one.span) ?? 0) + one.rows)
  const failed = counts.filter(({ action, status }) => action === FAILED.action && status === FAILED.status)
  const spans = [...new Set(failed.map(({ span }) => span))].toSorted().toReversed()
  return spans.map((span) => [span, rows.get(span) ?? 0])
}

async function failedRows(
  { database, ledgerPlaces }: AdminContext,
  caller: AdminCaller,
  times: { readonly since: number; readonly until: number },
): Promise<readonly AuditRow[]> {
  const query = { ...FAILED, ...times, limit: MAX_READ, archive: 'no' as const }
  const pieces = await ledgerPlaces.stream('pages', caller, (signal) =>
    database.audit.list(query, signal).catch(throwLedgerRefusal),
  )
  return (await parseLedgerPage(pieces)).rows
}

/** Adds up equal losses. `rows`: newest first. */
function lossKinds(rows: readonly AuditRow[]): readonly RefusedLoss[] {
  const kinds = new Map<string, RefusedLoss & { readonly all: Map<string, z.output<typeof lossyCaller>> }>()
  for (const row of rows) {
    const { detail, principal_id: ref, principal_type: type, model, recorded_at: last, request_id } = row
    if (detail.reason !== 'translation_lossy' || !Array.isArray(detail.losses)) continue
    const principal = row.principal_name ?? ref
    for (const loss of detail.losses.map(String)) {
      const key = JSON.stringify([loss, model])
      const first = { loss, model, count: 0, callers: [], more_callers: 0, last, request_id, all: new Map() }
      const known = kinds.get(key) ?? first
      known.all.set(String(principal), { principal, principal_type: type })
      kinds.set(key, { ...known, count: known.count + 1 })
    }
  }
  return [...kinds.values()]
    .map(({ all, ...kind }) => ({
      ...kind,
      callers: [...all.values()].slice(0, MAX_CALLERS),
      more_callers: Math.max(0, all.size - MAX_CALLERS),
    }))
    .toSorted((one, other) => other.count - one.count)
}
