import { openDatabase } from '../../../db/engine.ts'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { verifyDatabase } from '../../../db/ledger/read/read.ts'
import { uncovered } from '../authority.ts'
import { eventually } from '../settled.ts'
import type { Made } from './load.ts'
import type { Door, Stage } from './stage.ts'

/**
 * Finds each promise that is broken, whatever has happened (docs/threats.md#f-41), and says it in a sentence. Calls whose replica has died may be open still: {@link openCalls}.
 */
export async function broken(stage: Stage<Door>, made: readonly Made[]): Promise<readonly string[]> {
  const rows = await orderedRows(stage)
  return [
    ...(await unverified(stage)),
    ...lost(rows, made),
    ...dispatched(stage, rows),
    ...unpaired(rows),
    ...ordersOf(rows).flatMap(([by, ordered]) => overtaken(by, ordered)),
    ...stage.replicas.flatMap(({ name, ended }) => (ended() === null ? [] : [`${name} ${ended()}`])),
  ]
}

/** The allowed calls without an outcome, once those that are only late are written. */
export const openCalls = (stage: Stage<Door>, patienceMs: number): Promise<readonly Row[]> =>
  eventually(
    async () => (await stage.ledger(OPEN)).rows as Row[],
    (open) => open.length === 0,
    patienceMs,
  )

const OPEN = `select stream, seq, request_id, model from audit_log decision
  where status = 'allowed' and request_id is not null and not exists (select from audit_rows outcome
    where outcome.request_id = decision.request_id and outcome.status in ('success', 'error', 'truncated', 'unknown'))`

/** A row, the instant of its commit, µs since the epoch, and its place among the rows of all streams. */
export type Row = AuditRow & { readonly committed: number; readonly place?: string | number }

/**
 * All rows in the order of their commits. A change of authority and the decisions of all streams are never committed
 * at once (docs/decisions/025), so the server's own note of each instant tells which came first. The rows of one
 * transaction are of one stream.
 */
export async function orderedRows(stage: Stage<Door>): Promise<readonly Row[]> {
  const { rows } = await stage.ledger(ORDERED)
  return rows as Row[]
}

const ORDERED = `select v.*, v.detail::json as detail, (extract(epoch from pg_xact_commit_timestamp(r.xmin)) * 1e6)::float8 as committed
  from audit_log v join audit_rows r using (stream, seq) order by committed, stream, seq`

async function unverified(stage: Stage<Door>): Promise<readonly string[]> {
  const database = await openDatabase(stage.ledgerUrl)
  const verdict = await verifyDatabase(database.kysely)
  await database.close()
  return verdict.ok ? [] : [`the ledger does not verify: ${JSON.stringify(verdict)}`]
}

/** Each row that a caller was promised is there. */
function lost(rows: readonly Row[], made: readonly Made[]): readonly string[] {
  const hashes = new Map(rows.map(({ stream, seq, row_hash }) => [`${stream} ${seq}`, row_hash]))
  return made.flatMap(({ receipt, status }) => {
    if (!receipt || hashes.get(`${receipt.stream} ${receipt.seq}`) === receipt.hash) return []
    return [`lost: row ${receipt.seq} of ${receipt.stream}, promised with ${status}`]
  })
}

/** Nothing reached the provider without a durable decision before it, and no call reached it twice. */
function dispatched({ provider }: Stage<Door>, rows: readonly Row[]): readonly string[] {
  const allowed = Map.groupBy(
    rows.filter(({ status }) => status === 'allowed'),
    ({ model }) => model,
  )
  const reached = Map.groupBy(provider.reached, ({ model }) => model)
  return [...reached].flatMap(([model, all]) => [
    ...(all.some(({ decided }) => decided === false)
      ? [`dispatched: ${model} before its decision was durable`]
      : []),
    ...(allowed.get(model)?.length === 1
      ? []
      : [`dispatched: ${model} has ${allowed.get(model)?.length ?? 0} decisions`]),
    ...(all.length === 1 ? [] : [`dispatched: ${model} ${all.length} times`]),
  ])
}

const OUTCOMES: readonly string[] = ['success', 'error', 'truncated', 'unknown']

/** No call has two outcomes, and none has one without a decision. */
function unpaired(rows: readonly Row[]): readonly string[] {
  const calls = Map.groupBy(
    rows.filter(({ request_id: id, action }) => id !== null && action === 'egress_llm_chat'),
    ({ request_id: id }) => id,
  )
  return [...calls].flatMap(([id, all]) => {
    const decisions = all.filter(({ status }) => status === 'allowed').length
    const outcomes = all.filter(({ status }) => OUTCOMES.includes(status))
    if (outcomes.length <= decisions && decisions <= 1) return []
    return [
      `pairs: ${id} has ${decisions} decisions and the outcomes ${outcomes.map(({ stream, seq, status }) => `${status} (${stream} ${seq})`).join(', ')}`,
    ]
  })
}

/** B1: no decision stands behind the change that ended what it rests on. `by`: what orders the rows. */
function overtaken(by: string, rows: readonly Row[]): readonly string[] {
  const revisions = new Map<unknown, number>()
  const late = rows.filter(({ detail, status, principal_id: principal }) => {
    if (typeof detail.revision === 'number') revisions.set(detail.subject, detail.revision)
    return status === 'allowed' && revisionOf(detail) !== revisions.get(principal)
  })
  const said = ({ stream, seq }: Pick<Row, 'stream' | 'seq'>) => `row ${seq} of ${stream}`
  return [
    ...late.map(
      (row) =>
        `B1 (${by}): ${said(row)} is allowed by revision ${String(revisionOf(row.detail))}, which had changed`,
    ),
    ...uncovered(rows).map((row) => `B1 (${by}): ${said(row)} is allowed by nothing before it`),
  ]
}

const revisionOf = ({ authority }: Row['detail']): unknown =>
  typeof authority === 'object' && authority !== null && 'revision' in authority
    ? authority.revision
    : undefined

/** The server's own note of the instant, and the place that the ledger gives each row, where it gives any. */
function ordersOf(rows: readonly Row[]): readonly (readonly [string, readonly Row[]])[] {
  const placed = rows.every(({ place }) => place !== undefined)
  const byPlace = rows.toSorted((a, b) => Number(a.place) - Number(b.place))
  return [['by commit', rows], ...(placed ? ([['by place', byPlace]] as const) : [])]
}
