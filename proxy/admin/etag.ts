import { Refusal } from '../../plugins/refusal.ts'

/** An object that counts its changes. */
interface Revised {
  readonly revision: number
}

/** The entity tag of an object: its revision. */
export const etagOf = ({ revision }: Revised): string => `"${revision}"`

/**
 * Honours `If-Match` (RFC 9110 §13.1.1): throws `precondition_failed` where it names another state of the object, so that
 * what was decided on a stale read does not undo somebody else's change. Absent or `*` always matches.
 * Gives the revision that the write must still find, or undefined where it may find any.
 */
export function checkIfMatch(ifMatch: string | undefined, record: Revised): number | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined
  const tags = ifMatch.split(',').map((tag) => tag.trim())
  if (!tags.includes(etagOf(record))) throw new Refusal('precondition_failed')
  return record.revision
}
