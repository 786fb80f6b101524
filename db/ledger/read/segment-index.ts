import type { StoredRow } from '../record/leaf.ts'

/**
 * The principals and the actions of the rows of a segment, by which a question finds those that it needs: JSON. Null:
 * too many to list.
 */
export interface SegmentIndex {
  readonly principals: string | null
  readonly actions: string | null
}

/** The principals, and the actions, of a segment that its index lists at most. */
const MAX_INDEXED = 1_000

/** Makes the index of the rows that it sees. */
export class SegmentIndexer {
  readonly #principals = new Set<string>()
  readonly #actions = new Set<string>()

  see({ action, principal_id: id }: Pick<StoredRow, 'action' | 'principal_id'>): void {
    if (this.#actions.size <= MAX_INDEXED) this.#actions.add(action)
    if (this.#principals.size <= MAX_INDEXED && id !== null) this.#principals.add(id)
  }

  index(): SegmentIndex {
    return { principals: listOf(this.#principals), actions: listOf(this.#actions) }
  }
}

const listOf = (some: ReadonlySet<string>): string | null =>
  some.size > MAX_INDEXED ? null : JSON.stringify([...some].toSorted())
