import type { PrincipalRecord } from '../../db/principals.ts'
import { Refusal } from '../../plugins/refusal.ts'

/** The entity tag of a principal: its revision. */
export const etagOf = ({ revision }: PrincipalRecord): string => `"${revision}"`

/**
 * Honours `If-Match` (RFC 9110 §13.1.1): throws `precondition_failed` where it names another state of the object, so that
 * what was decided on a stale read does not undo somebody else's change. Absent or `*` always matches.
 * Gives the revision that the write must still find, or undefined where it may find any.
 */
export function checkIfMatch(ifMatch: string | undefined, record: PrincipalRecord): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(record))) throw new Refusal('precondition_failed')
  return record.revision
}
