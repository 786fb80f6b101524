import { z } from 'zod'
import {
  MAX_SPEND_DAYS,
  SPEND_DIMENSIONS,
  SPEND_SUMS,
  type SpendAnswer,
  type SpendDimension,
  type SpendGroup,
  type SpendQuestion,
} from '../../../db/ledger/counts/spend-counts.ts'
import { csvCell } from '../../../db/ledger/read/evidence-tables.ts'
import { ledgerNameOf, type PrincipalName, principalNames } from '../../../db/principals/subject-keys.ts'
import { parseTextsCursor, printTextsCursor } from '../../../db/support/cursor.ts'
import { usdExact } from '../../../plugins/prices/usd.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import { throwLedgerRefusal } from '../audit/audit.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { type ParsedInput, readOperation } from '../operation/operation.ts'

const DAY_MS = 86_400_000
const DAY_FORM = 'must be a day of the calendar, in UTC, such as 2026-11-01'
const BY_FORM = `must name one or more of ${SPEND_DIMENSIONS.join(', ')}, each once, with commas between`

const day = z.iso.date(DAY_FORM).exactOptional()

const isDimension = (name: string): name is SpendDimension =>
  SPEND_DIMENSIONS.some((dimension) => dimension === name)

const dimensions = z
  .string()
  .max(64, BY_FORM)
  .transform((text, context): readonly SpendDimension[] => {
    const names = text.split(',')
    const known = names.filter(isDimension)
    if (known.length === names.length && new Set(names).size === names.length) return known
    context.addIssue({ code: 'custom', message: BY_FORM })
    return z.NEVER
  })
  .exactOptional()
  .meta({
    type: 'string',
    description: 'day, principal, provider, model, tool, with commas between. Default: day.',
  })

const takes = {
  query: z.strictObject({
    by: dimensions,
    from: day.meta({ description: 'The first day, UTC. Default: the first of the month of `to`.' }),
    to: day.meta({ description: 'The last day, inclusive. Default: today.' }),
    principal: z.string().max(1024).exactOptional().meta({ description: 'Of one principal, by its id.' }),
    order: z.enum(['key', 'cost']).exactOptional().meta({
      description: 'key: by the named properties, page by page. cost: the dearest first, one page.',
    }),
    limit: z.coerce.number().int().min(1).max(1000).exactOptional().meta({ description: 'Default: 100.' }),
    cursor: z.string().max(16_384).exactOptional(),
    format: z.enum(['json', 'csv']).exactOptional(),
  }),
} as const

type CostsInput = ParsedInput<typeof takes>

const count = z.int().min(0)
const sums = {
  calls: count.meta({ description: 'Calls whose row states a cost, or that there is no price.' }),
  input_tokens: count,
  output_tokens: count,
  cache_read_tokens: count.meta({ description: 'The part of input_tokens from a cache.' }),
  cache_write_tokens: count.meta({ description: 'The part of input_tokens written to a cache.' }),
  microusd: count.meta({ description: 'Millionths of a US dollar.' }),
  estimated_calls: count.meta({ description: 'Calls that the provider did not state all counts of.' }),
  estimated_microusd: count.meta({ description: 'The part of microusd that is an estimate.' }),
  unpriced_calls: count.meta({ description: 'Calls that have no price, and count as nothing.' }),
}
const name = z.string().nullable().exactOptional()

const costs = z.strictObject({
  from: z.iso.date(),
  to: z.iso.date(),
  by: z.array(z.enum(SPEND_DIMENSIONS)),
  rows: z.array(
    z.strictObject({
      day: z.iso.date().exactOptional(),
      principal: name.meta({ description: 'As the ledger names it.' }),
      principal_type: name.meta({ description: 'Null: there is no such principal any more.' }),
      principal_name: name.meta({ description: 'The id of a user, as long as the user exists.' }),
      ...{ provider: name, model: name, tool: name },
      ...sums,
    }),
  ),
  total: z.strictObject(sums).meta({ description: 'Of all rows, those of other pages too.' }),
  uncounted: count.meta({ description: 'About how many rows of the ledger are not counted yet.' }),
  next_cursor: z.string().nullable().meta({ description: 'Null: the last page, or order=cost.' }),
})

export type CostReport = z.output<typeof costs>
export type CostLine = CostReport['rows'][number]

/** GET /v1/admin/costs: what calls have cost, by who made them and what for (docs/protocol.md#costs). */
export const listCosts = readOperation({
  name: 'listCosts',
  demands: 'admin.audit',
  summary: 'Sums what calls cost, by day, principal, provider, model and tool.',
  takes,
  output: costs,
  fromStrangers: true,
  reasons: ['overloaded'],
  run: async (context, { query }, caller) => {
    const { asked, ...window } = await questionOf(context, query, caller.at)
    const { groups, more, total, uncounted } = await ask(context, asked, caller)
    const rows = await linesOf(context, asked.by, groups)
    const next = more && asked.order === 'key' ? cursorAfter(asked.by, groups) : null
    return { value: { ...window, by: [...asked.by], rows, total, uncounted, next_cursor: next } }
  },
})

/** The same as CSV (RFC 4180), all pages: a spreadsheet runs none of its texts. */
export const listCostsAsCsv = readOperation({
  name: 'listCostsAsCsv',
  demands: 'admin.audit',
  summary: 'The same as a table.',
  takes,
  output: z.custom<AsyncIterable<Uint8Array>>().meta({ type: 'string' }),
  media: 'text/csv',
  reasons: ['overloaded'],
  run: async (context, { query }, caller) => {
    const { asked } = await questionOf(context, query, caller.at)
    const open = async (signal: AbortSignal) => csvPieces(context, asked, signal)
    return { value: await context.ledgerPlaces.stream('exports', caller, open) }
  },
})

/** Lists the models of the last 30 days that have no price. For Attention; no route has it. */
export const listUnpricedModels = readOperation({
  name: 'listUnpricedModels',
  demands: 'admin.audit',
  summary: 'Lists the models of the last 30 days that have no price.',
  takes: { query: z.strictObject({ most: z.int() }) },
  output: z.strictObject({
    calls: count,
    models: z.array(z.strictObject({ model: z.string(), provider: z.string(), calls: count })),
  }),
  run: async (context, { query: { most } }, caller) => {
    const [from, to] = [29 * DAY_MS, 0].map((ms) => new Date(caller.at - ms).toISOString().slice(0, 10))
    const window = { from: from ?? '', to: to ?? '' }
    const asked: SpendQuestion = { by: ['provider', 'model'], ...window, order: 'unpriced', most }
    const { groups, total } = await ask(context, asked, caller)
    const models = groups.map(({ provider = '', model = '', unpriced_calls: calls }) => ({
      provider,
      model,
      calls,
    }))
    return { value: { calls: total.unpriced_calls, models } }
  },
})

/** Completes a question, and refuses a window or a cursor that is none. */
async function questionOf(
  { database }: AdminContext,
  { by = ['day'], principal, order = 'key', limit = 100, cursor, ...window }: CostsInput['query'],
  at: number,
) {
  const { from, to } = windowIn(window, at)
  if (cursor !== undefined && order === 'cost')
    throw unprocessableBody([{ field: 'cursor', message: 'goes with order=key alone' }])
  const after = cursor === undefined ? undefined : parseTextsCursor(cursor, by.length)
  if (after === null)
    throw unprocessableBody([{ field: 'cursor', message: 'is not a cursor of this question' }])
  const asked: SpendQuestion = {
    ...{ by, from, to, order, most: limit },
    ...(principal !== undefined && { principal: await ledgerNameOf(database, principal) }),
    ...(after && { after }),
  }
  return { from, to, asked }
}

function windowIn({ from, to }: Pick<CostsInput['query'], 'from' | 'to'>, at: number) {
  const last = to ?? new Date(at).toISOString().slice(0, 10)
  const first = from ?? `${last.slice(0, 8)}01`
  if (first > last)
    throw unprocessableBody([{ field: 'to', message: `must not be before from, which is ${first}` }])
  if ((Date.parse(last) - Date.parse(first)) / DAY_MS >= MAX_SPEND_DAYS)
    throw unprocessableBody([
      {
        field: 'from',
        message: `must be at most ${MAX_SPEND_DAYS} days up to ${last}: older costs are not kept`,
      },
    ])
  return { from: first, to: last }
}

const ask = ({ database, ledgerPlaces }: AdminContext, asked: SpendQuestion, caller: AdminCaller) =>
  ledgerPlaces.run('pages', caller, () =>
    database.rowCounts.spends(asked, caller.hangup.signal).catch(throwLedgerRefusal),
  )

const cursorAfter = (by: readonly SpendDimension[], groups: readonly SpendGroup[]): string | null => {
  const last = groups.at(-1)
  return last ? printTextsCursor(by.map((dimension) => last[dimension] ?? '')) : null
}

/** Groups as lines: names that are absent are null, and pseudonyms have the names of their users. */
async function linesOf(
  { database }: Pick<AdminContext, 'database'>,
  by: readonly SpendDimension[],
  groups: readonly SpendGroup[],
): Promise<CostLine[]> {
  const known = by.includes('principal')
    ? await principalNames(
        database,
        groups.map(({ principal = '' }) => principal),
      )
    : null
  return groups.map((group) => {
    const names = Object.fromEntries(by.map((dimension) => [dimension, group[dimension] || null]))
    const counts = Object.fromEntries(SPEND_SUMS.map((sum) => [sum, group[sum]]))
    // Proven by SPEND_DIMENSIONS and SPEND_SUMS, which have each member.
    return { ...names, ...(known && nameOf(known.get(group.principal ?? ''))), ...counts } as CostLine
  })
}

const nameOf = (known: PrincipalName | undefined) => ({
  principal_type: known?.type ?? null,
  ...(known?.type === 'user' && { principal_name: known.id }),
})

const CSV_PAGE = 1_000

async function* csvPieces(
  context: AdminContext,
  asked: SpendQuestion,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const { by, order, most } = asked
  const names = by.flatMap((dimension) =>
    dimension === 'principal' ? ['principal', 'principal_type', 'principal_name'] : [dimension],
  )
  const columns = [...names, ...SPEND_SUMS, 'usd']
  yield Buffer.from(`${columns.join(',')}\r\n`)
  // By cost there is one page: the dearest.
  let question: SpendQuestion = { ...asked, most: order === 'cost' ? most : CSV_PAGE }
  for (let more = true; more; ) {
    const found: SpendAnswer = await context.database.rowCounts
      .spends(question, signal)
      .catch(throwLedgerRefusal)
    const lines = await linesOf(context, by, found.groups)
    yield Buffer.from(lines.map((line) => csvLineOf(columns, line)).join(''))
    const last = found.groups.at(-1)
    more = found.more && order === 'key' && last !== undefined
    question = { ...question, after: by.map((dimension) => last?.[dimension] ?? '') }
  }
}

function csvLineOf(columns: readonly string[], line: CostLine): string {
  const cells: Readonly<Record<string, string | number | null>> = { ...line, usd: usdExact(line.microusd) }
  return `${columns.map((column) => csvCell(cells[column] ?? null)).join(',')}\r\n`
}
