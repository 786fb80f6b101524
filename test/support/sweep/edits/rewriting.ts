import type { Json } from '../../gateway.ts'
import type { SealedLog } from '../life/log.ts'
import type { Chooser, Code } from './edit.ts'

/** Rows as they are to stand, without their hashes, and what the rows alone say of it. Null: nothing to do it to. */
export type Rewrite = (
  rows: readonly Json[],
  choose: Chooser,
  log: SealedLog,
) => { readonly rows: readonly Json[]; readonly alone: Code } | null

export const gated = ({ action }: Json): boolean =>
  action === 'egress_llm_chat' || (action.startsWith('mcp_') && !action.includes('.'))
export const isDecision = (row: Json): boolean =>
  gated(row) && (row.status === 'allowed' || row.status === 'denied') && row.v === 2
export const isOutcome = (row: Json): boolean =>
  gated(row) && ['success', 'error', 'truncated', 'unknown'].includes(row.status)
export const isAllowed = (row: Json): boolean => isDecision(row) && row.status === 'allowed'
/** A decision that the rows before it are judged by, and that is no summary. */
export const isJudged = (row: Json): boolean =>
  isAllowed(row) ||
  (isDecision(row) &&
    row.request_id !== null &&
    ['capability_missing', 'mcp_not_bound', 'proof_required'].includes(row.detail.reason))

export const indexOf = (
  rows: readonly Json[],
  { one }: Chooser,
  wanted: (row: Json, index: number) => boolean,
): number | null => one(rows.flatMap((row, index) => (wanted(row, index) ? [index] : []))) ?? null

/** A rewrite of one row. */
export const ofOne =
  (
    wanted: (row: Json, index: number, rows: readonly Json[]) => boolean,
    change: (row: Json, choose: Chooser) => Json,
    alone: Code,
  ): Rewrite =>
  (rows, choose) => {
    const at = indexOf(rows, choose, (row, index) => wanted(row, index, rows))
    const made = at === null ? null : change(structuredClone(rows[at]), choose)
    return at === null || made === null ? null : { rows: rows.with(at, made), alone }
  }

export const inAuthority = (row: Json, change: object): Json => ({
  ...row,
  detail: { ...row.detail, authority: { ...row.detail.authority, ...change } },
})
export const inDetail = (row: Json, change: object): Json => ({
  ...row,
  detail: { ...row.detail, ...change },
})
export const without = (row: Json, ...names: readonly string[]): Json => ({
  ...row,
  detail: Object.fromEntries(Object.entries(row.detail).filter(([name]) => !names.includes(name))),
})
export const isChange = ({ action, status, v }: Json): boolean =>
  v === 2 && status === 'success' && /^(agent|user|workload)\./.test(action)
export const later = (rows: readonly Json[], index: number, wanted: (row: Json) => boolean): boolean =>
  rows.slice(index + 1).some(wanted)
export const restartsBehind = (rows: readonly Json[], index: number): boolean =>
  later(rows, index, ({ stream, action }) => stream === rows[index]?.stream && action === 'service.started')
export const mayBegin = ({ v, action, principal_type: type }: Json): boolean =>
  v === 1 || action === 'service.started' || type === 'operator'
