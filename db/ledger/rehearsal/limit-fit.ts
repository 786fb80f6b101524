import type { CompiledScope } from '../../limits/scope.ts'
import type { PrincipalType } from '../../schema.ts'
import type { StoredRow } from '../record/leaf.ts'
import type { ChangedLimit } from './limit-changes.ts'

/** The columns of a decision that limits look at. */
export type LimitedRow = Pick<StoredRow, 'action' | 'principal_id' | 'principal_type' | 'tool' | 'model'>

interface KnownCaller {
  /** The capabilities that it held then; null: no row says it. */
  readonly capabilities: readonly string[] | null
  /** The ids of users by their names in the ledger. */
  readonly names: ReadonlyMap<string, string>
}

const NO_SET = 'calls of principals of which no row says what they hold'
const NO_NAME = 'calls of principals whose names are erased'

/**
 * Tells whether calls may come under a limit, all but its models: true, false, or why that is not known. What is not
 * known is asked last: another part of the scope may not fit.
 */
export function limitFits(
  { change, scope }: { readonly change: ChangedLimit; readonly scope: CompiledScope },
  row: LimitedRow,
  { capabilities: held, names }: KnownCaller,
): boolean | string {
  const { models, tools, principals, holding, types } = change.terms.for
  if (models && row.action !== 'egress_llm_chat') return false
  if (tools && !scope.fitsCall({ models: [], tool: row.tool })) return false
  const ref = row.principal_id ?? ''
  const id = names.get(ref) ?? ref
  // Written by the ledger: the type of a caller.
  const type = row.principal_type as PrincipalType
  const capabilities = held ?? (holding === undefined ? [] : [holding])
  const isErased = principals !== undefined && type === 'user' && !names.has(ref)
  if (isErased) {
    const isOther =
      types?.includes(type) === false || (holding !== undefined && !capabilities.includes(holding))
    return isOther ? false : NO_NAME
  }
  if (!scope.fitsPrincipal({ id, type, capabilities })) return false
  return held === null && holding !== undefined ? NO_SET : true
}
