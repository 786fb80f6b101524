import { isObject, type UnknownRecord } from '../../support/json.ts'
import { FREQUENT_ACTIONS } from '../record/frequent.ts'
import type { StoredRow } from '../record/leaf.ts'

export interface PrincipalSet {
  readonly principal: string
  readonly revision: number
  readonly is_active: boolean
  readonly capabilities: readonly unknown[]
  /** The row that says so. */
  readonly row: string
}

export class PrincipalSets {
  readonly #held: Map<string, PrincipalSet>

  /** `before`: what they held before the first row. */
  constructor(before: readonly PrincipalSet[] = []) {
    this.#held = new Map(
      before.map(({ principal, revision, is_active, capabilities, row }) => [
        principal,
        // In the order of their file.
        { principal, revision, is_active, capabilities, row },
      ]),
    )
  }

  add({ stream, seq, action, detail }: StoredRow): void {
    if (FREQUENT_ACTIONS.includes(action)) return
    const { subject, revision, capabilities, is_active: active } = detailOf(detail)
    if (typeof subject !== 'string' || typeof revision !== 'number' || !Array.isArray(capabilities)) return
    const held = {
      principal: subject,
      revision,
      is_active: active !== false,
      capabilities,
      row: `${stream}:${seq}`,
    }
    this.#held.set(subject, held)
  }

  /** Returns them by principal. */
  list(): readonly PrincipalSet[] {
    return [...this.#held.values()].toSorted((one, other) => (one.principal < other.principal ? -1 : 1))
  }
}

function detailOf(text: string): UnknownRecord {
  const value: unknown = JSON.parse(text)
  return isObject(value) ? value : {}
}
