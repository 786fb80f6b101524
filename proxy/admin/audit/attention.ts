import { z } from 'zod'
import { readCursors } from '../../../db/ledger/cursors/cursors.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { allowedSince } from '../../../db/ledger/read/refused.ts'
import { listMcpBindings } from '../../../db/mcp/bindings.ts'
import { isToolQuarantined } from '../../../db/mcp/tools.ts'
import { deferralsAt, MAX_DEFERRALS, putDeferral } from '../../../db/operators/deferrals.ts'
import { findPrincipalOf, type PrincipalRecord } from '../../../db/principals/read.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { PRINCIPAL_KINDS } from '../operation/kinds.ts'
import { emptyOperation, readOperation } from '../operation/operation.ts'
import { instant } from '../operation/shapes.ts'
import { parseLedgerPage, throwLedgerRefusal } from './audit.ts'

const DAY_MS = 86_400_000
/** The newest refusals that are read, and the kinds of them that are looked up and shown. */
const [MAX_REFUSALS, MAX_KINDS] = [500, 50]

const openRefusal = z.strictObject({
  principal: z.string().nullable().meta({ description: 'Null: nobody was known.' }),
  principal_type: z.enum(['agent', 'user', 'workload', 'operator']).nullable(),
  action: z.string(),
  tool: z.string().nullable(),
  model: z.string().nullable(),
  reason: z.string(),
  required_capability: z.string().nullable(),
  count: z.int(),
  first: instant,
  last: instant,
  request_id: z.string().nullable().meta({ description: 'Of the last one.' }),
})

export type OpenRefusal = z.output<typeof openRefusal>

/** Lists the refusals of the last day that still stand, equal ones as one. For Attention; no route has it. */
export const listOpenRefusals = readOperation({
  name: 'listOpenRefusals',
  demands: 'admin.audit',
  summary:
    'Lists the refusals of the last day of which nobody has granted, approved or renewed the lack since.',
  takes: {},
  output: z.strictObject({ refusals: z.array(openRefusal), more: z.boolean() }),
  run: async (context, _input, caller) => {
    const query = { status: 'denied', since: caller.at - DAY_MS, limit: MAX_REFUSALS, archive: 'no' as const }
    const pieces = await context.ledgerPlaces.stream('pages', caller, (signal) =>
      context.database.audit.list(query, signal).catch(throwLedgerRefusal),
    )
    const { rows, next_cursor: next } = await parseLedgerPage(pieces)
    const kinds = refusalKinds(rows)
    const refusals: OpenRefusal[] = []
    for (const { ref, ...kind } of kinds.slice(0, MAX_KINDS))
      if (!(await isSettled(context, kind, ref))) refusals.push(kind)
    return { value: { refusals, more: next !== null || kinds.length > MAX_KINDS } }
  },
})

type RefusalKind = OpenRefusal & { readonly ref: string | null }

/** Adds up equal refusals. `rows`: newest first. */
function refusalKinds(rows: readonly AuditRow[]): readonly RefusalKind[] {
  const kinds = new Map<string, RefusalKind>()
  for (const row of rows) {
    const { detail, principal_id: ref, action, tool, model, recorded_at: at, request_id } = row
    const reason = typeof detail.reason === 'string' ? detail.reason : 'unknown'
    const token = typeof detail.required_capability === 'string' ? detail.required_capability : null
    const key = JSON.stringify([ref, action, tool, model, reason, token])
    const { count, ...known } = kinds.get(key) ?? {
      count: 0,
      ...{ ref, principal: row.principal_name ?? ref, action, tool, model, reason, request_id, last: at },
      principal_type: typeOf(row.principal_type),
      required_capability: token,
    }
    kinds.set(key, { ...known, first: at, count: count + timesOf(row) })
  }
  return [...kinds.values()]
}

const typeOf = (type: string | null): OpenRefusal['principal_type'] =>
  type !== null && type in PRINCIPAL_KINDS ? (type as OpenRefusal['principal_type']) : null

/** The refusals that a row stands for: more than one if it is a summary, or of strangers. */
function timesOf({ detail: { summarised, count } }: AuditRow): number {
  const many =
    typeof summarised === 'object' && summarised !== null && 'count' in summarised ? summarised.count : count
  return typeof many === 'number' && Number.isInteger(many) && many > 0 ? many : 1
}

async function isSettled(
  { database }: AdminContext,
  refusal: OpenRefusal,
  ref: string | null,
): Promise<boolean> {
  const { principal, principal_type: type, reason, required_capability: token, tool } = refusal
  if (principal === null || ref === null || type === null) return false
  const now = await findPrincipalOf(database, [type], principal)
  // It cannot call any more.
  if (!now?.is_active) return isNamed(type, principal)
  if (reason === 'capability_missing' && token !== null) return now.capabilities.includes(token)
  if (reason === 'mcp_not_bound' && tool !== null && (await isBound(database, now, tool))) return true
  if (reason === 'mcp_tool_quarantined' && tool !== null && !(await isToolQuarantined(database, tool)))
    return true
  if (UNPROVEN.has(reason)) return false
  return allowedSince(database, { ...refusal, principal_id: ref })
}

/** Refusals of somebody who has not proven to be the caller: what that one does settles none of them. */
const UNPROVEN: ReadonlySet<string> = new Set([
  ...['certificate_not_pinned', 'certificate_not_valid_now'],
  ...['proof_required', 'proof_invalid', 'token_invalid'],
])

/** False of an operator that is no principal: one by the secret or the socket. */
const isNamed = (type: NonNullable<OpenRefusal['principal_type']>, id: string): boolean =>
  type !== 'operator' || id.includes('::')

async function isBound(
  database: AdminContext['database'],
  { principal_id: principalId }: PrincipalRecord,
  tool: string,
): Promise<boolean> {
  const bindings = await listMcpBindings(database, { principalId }, eventLoopTurn)
  return bindings.some(({ resource_name: name }) => tool.startsWith(`${name}.`))
}

const deferral = z.strictObject({
  card: z.string(),
  title: z.string(),
  until: instant,
  reason: z.string(),
  by: z.string(),
  at: instant,
})

/** Lists the cards of Attention that are put off now. No route has it. */
export const listDeferrals = readOperation({
  name: 'listDeferrals',
  summary: 'Lists what of Attention is put off now.',
  takes: {},
  output: z.array(deferral),
  run: async ({ database }, _input, { at }) => ({ value: await deferralsAt(database, at) }),
})

/** Puts a card of Attention off, for everybody. No route of the API has it. */
export const deferCard = emptyOperation({
  name: 'deferCard',
  demands: 'admin.grant',
  action: 'admin.attention_deferred',
  summary: 'Puts off what Attention shows, or shows it again.',
  takes: {
    body: z.strictObject({
      card: z.string().regex(/^[0-9a-f]{32}$/),
      title: z.string().min(1).max(300),
      reason: z.string().trim().min(1, 'must say why').max(500),
      hours: z.coerce.number().int().min(0).max(2_160).meta({ description: '0: it is shown again.' }),
    }),
  },
  harmless: true,
  reasons: ['proposals_full', 'audit_unavailable'],
  run: async (context, { body: { hours, ...said } }, caller) => {
    const { database } = context
    const { at, actor } = caller
    const until = at + hours * 3_600_000
    if (hours > 0 && (await deferralsAt(database, at)).length >= MAX_DEFERRALS)
      throw new Refusal('proposals_full', {
        message: 'Too much is put off already. Show something again first.',
      })
    await commitChange(context, caller, {
      action: hours === 0 ? 'admin.attention_restored' : 'admin.attention_deferred',
      detail: { ...said, until: new Date(until).toISOString() },
      statements: putDeferral(database, { ...said, until, at, by: actor.id }),
    })
  },
})

/** Says since when a reader of the ledger fails, and why; null: it does not. For Attention; no route has it. */
export const readerFailure = async ({ database }: Pick<AdminContext, 'database'>, reader: string) =>
  (await readCursors(database, reader)).failure
