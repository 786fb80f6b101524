import type { Database } from '../../../db/database.ts'
import type { Answered, Json } from '../gateway.ts'

/** What was decided of a call; `invalid` is of its form. */
export interface Verdict {
  readonly status: string
  /** Null where it was allowed. */
  readonly reason: string | null
  readonly capability: string | null
}

/** The same as its row has it. */
export interface Decided extends Verdict {
  readonly action: string
  readonly tool: string | null
  readonly model: string | null
  readonly at: string
  /** The `egress_dpop_mode` of then. */
  readonly mode: string
}

/** The verdict that a caller was told, of a call that has no row of its own. */
export function toldOf({ json }: Answered): Verdict {
  const said: Json = json?.error?.data ?? json
  if (typeof said?.reason !== 'string')
    throw new Error(`a call without a row was answered ${JSON.stringify(json)}`)
  const capability = said.required_capability ?? said.detail?.required_capability ?? null
  return { status: 'denied', reason: said.reason, capability }
}

/** The rows of the decisions on requests, by their ids. */
export async function decisionsOf(
  { kysely }: Database,
  ids: readonly string[],
): Promise<ReadonlyMap<string, Decided>> {
  const rows = await kysely
    .selectFrom('audit_log')
    .select(['request_id', 'recorded_at', 'status', 'action', 'tool', 'model', 'detail'])
    .where('request_id', 'in', ids)
    .where('status', 'in', ['allowed', 'denied', 'invalid'])
    .execute()
  return new Map(
    rows.map(({ request_id: id, recorded_at: at, detail, ...row }) => {
      const { reason = null, required_capability: capability = null, authority }: Json = JSON.parse(detail)
      return [id ?? '', { ...row, at, reason, capability, mode: authority.mode.egress_dpop_mode }]
    }),
  )
}

/** The number of decisions that rows speak of, a summary for as many as it says. */
export async function countedIn({ kysely }: Database): Promise<number> {
  const rows = await kysely
    .selectFrom('audit_log')
    .select(['request_id', 'detail'])
    .where('status', 'in', ['allowed', 'denied'])
    // Of a change the action has a dot.
    .where('action', 'not like', '%.%')
    .execute()
  return rows.reduce((sum, row) => sum + (row.request_id === null ? countOf(row.detail) : 1), 0)
}

const countOf = (detail: string): number => {
  const said: Json = JSON.parse(detail)
  return said.summarised.count
}

/** The summaries of refusals since an instant: of how many, and the last of their times. RFC 3339. */
export async function summariesSince(
  { kysely }: Database,
  since: string,
): Promise<{ readonly count: number; readonly at: string }> {
  const rows = await kysely
    .selectFrom('audit_log')
    .select(['recorded_at', 'detail'])
    .where('status', '=', 'denied')
    .where('request_id', 'is', null)
    .where('recorded_at', '>=', since)
    .where('action', 'not like', '%.%')
    .execute()
  const count = rows.reduce((sum, { detail }) => sum + countOf(detail), 0)
  return {
    count,
    at:
      rows
        .map(({ recorded_at: at }) => at)
        .toSorted()
        .at(-1) ?? '',
  }
}
