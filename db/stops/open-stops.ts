import type { UnknownRecord } from '../support/json.ts'
import { isStopped, type StoppableCall, type StopScope, stopScopeOf } from './stop.ts'

/** Stops of calls by their ids. */
export type StopScopes = Readonly<Record<string, StopScope>>

/** The stops that have not ended, as the rows so far say it (docs/ledger.md#stops). */
export class OpenStops {
  readonly #open: Map<string, StopScope>

  constructor(state: StopScopes = {}) {
    this.#open = new Map(Object.entries(state))
  }

  get scopes(): ReadonlyMap<string, StopScope> {
    return this.#open
  }

  /** Takes in a row of a stop. Returns half a sentence if it cannot be one. */
  apply(what: string, { stop: id, scope: said }: UnknownRecord): string | null {
    const scope = stopScopeOf(said)
    if (typeof id !== 'string' || !scope) return 'does not say what it stops'
    if (what === 'ended') return this.#open.delete(id) ? null : `ends ${id}, which was not open`
    if (this.#open.has(id)) return `begins ${id} a second time`
    this.#open.set(id, scope)
    return null
  }

  /** Tells whether a stop is open and for this call. */
  applies(id: string, call: StoppableCall): boolean {
    const scope = this.#open.get(id)
    return scope !== undefined && isStopped(scope, call)
  }

  /** Finds an open stop of this call; undefined: there is none. */
  find(call: StoppableCall): string | undefined {
    for (const [id, scope] of this.#open) if (isStopped(scope, call)) return id
    return undefined
  }
}
