import type { UnknownRecord } from '../../../db/support/json.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import type { AdminContext } from '../operation/context.ts'

/** The members of `detail` that are commitments. */
const COMMITTED = ['body_sha256', 'arguments_sha256', 'result_sha256']

interface CommitmentRow {
  readonly principal_id: string | null
  readonly request_id: string | null
  readonly detail: UnknownRecord
}

/**
 * The salts of a row's commitments by member name (docs/ledger.md#commitments). Hex. Empty if the principal
 * was erased.
 */
export async function saltsOf(
  { principal_id: ref, request_id: id, detail }: CommitmentRow,
  keys: AdminContext['subjectKeys'],
): Promise<Readonly<Record<string, string>>> {
  const key = ref === null || id === null ? null : await keys.find(ref)
  if (!key || id === null) return {}
  const commitments = commitmentsBy(key, id)
  return Object.fromEntries(
    COMMITTED.filter((label) => label in detail).map((label) => [label, commitments.salt(label)]),
  )
}
