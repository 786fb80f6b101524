import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isInstant } from '../canonical/instant.ts'
import type { StoredRow } from '../record/leaf.ts'
import { type CallGrade, isInForce } from './rule.ts'
import { isText, isTexts } from './states.ts'

/** A grant, as rows and tables have it (docs/ledger.md#replay). The members have the names of those in rows. */
export interface GrantState {
  readonly subject: string
  /** The SHA-256 of the client's id. Hex. */
  readonly client: string
  readonly scope: readonly string[] | null
  readonly resource: string
  readonly bound: CallGrade
  readonly jkt: string | null
  readonly expires_at: string
}

/** The grants that are followed before those that are over are forgotten. */
const MAX_GRANTS = 10_000

/** Tells a grant by its types. A key is named if it is bound to one, and only then. */
export function isGrantState(value: unknown): value is GrantState {
  if (!isObject(value)) return false
  const { subject, client, scope, resource, bound, jkt, expires_at: until } = value
  return (
    [subject, client, resource].every(isText) &&
    (scope === null || isTexts(scope)) &&
    ((bound === 'none' && jkt === null) || (bound === 'key' && isText(jkt))) &&
    isText(until) &&
    isInstant(until)
  )
}

/** Replays the rows of grants. */
export class GrantReplay {
  readonly #grants: Map<string, GrantState>

  constructor(state: Readonly<Record<string, GrantState>> = {}) {
    this.#grants = new Map(Object.entries(state))
  }

  /** Returns those that rows to come are judged by; undefined: there is none. */
  state(): Readonly<Record<string, GrantState>> | undefined {
    return this.#grants.size === 0 ? undefined : Object.fromEntries(this.#grants)
  }

  get(id: string): GrantState | undefined {
    return this.#grants.get(id)
  }

  /** Takes a row `grant.…` of version 2. Returns its fault, as half a sentence, or null. */
  apply({ recorded_at: at }: StoredRow, what: string, detail: UnknownRecord): string | null {
    const { grant: id, client, ...members } = detail
    if (!isText(id)) return 'does not say which grant it is about'
    if (what !== 'issued') return this.#end(id, detail)
    const { subject, scope, resource, bound, jkt, expires_at } = members
    const digest = isObject(client) ? client.id_sha256 : undefined
    const state = { subject, client: digest, scope, resource, bound, jkt, expires_at }
    if (!isGrantState(state)) return 'does not say what it grants'
    const isTaken = this.#grants.has(id)
    this.#grants.set(id, state)
    if (this.#grants.size > MAX_GRANTS)
      for (const [name, { expires_at: until }] of this.#grants) if (until < at) this.#grants.delete(name)
    return isTaken ? `issues the grant ${id} once more` : null
  }

  #end(id: string, { subject }: UnknownRecord): string | null {
    const known = this.#grants.get(id)
    this.#grants.delete(id)
    // One that is over may have been forgotten.
    return known && known.subject !== subject ? `ends the grant ${id} of ${known.subject}` : null
  }

  /** Compares the table with what rows have said. Each fault is a sentence. */
  findings(stored: ReadonlyMap<string, GrantState>, at: number): readonly string[] {
    const odd = [...stored].flatMap(([id, has]) => {
      const says = this.#grants.get(id)
      if (!isInForce(has.expires_at, at) && !(says && isInForce(says.expires_at, at))) return []
      if (!says) return [`the grant ${id} is in the tables, but no row issued it`]
      return grantText(has) === grantText(says)
        ? []
        : [`the grant ${id}: the tables have ${grantText(has)}, the ledger says ${grantText(says)}`]
    })
    const gone = [...this.#grants].flatMap(([id, { expires_at: until }]) =>
      stored.has(id) || !isInForce(until, at)
        ? []
        : [`the grant ${id} is in the ledger, but not in the tables`],
    )
    return [...odd, ...gone]
  }
}

const grantText = ({ subject, client, scope, resource, bound, jkt, expires_at }: GrantState): string =>
  [subject, client, scope?.toSorted().join(' ') ?? 'all', resource, bound, jkt ?? '', expires_at].join(' ')
