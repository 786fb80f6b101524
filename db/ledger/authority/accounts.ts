import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isText, isTexts } from './states.ts'

/** An account at an MCP server that has not ended, as rows and tables have it (docs/ledger.md#replay). */
export interface AccountState {
  readonly subject: string
  /** The resource's id. */
  readonly resource: string
  readonly issuer: string
}

export const isAccountState = (value: unknown): value is AccountState =>
  isObject(value) && [value.subject, value.resource, value.issuer].every(isText)

/** Replays the rows of accounts at MCP servers. */
export class AccountReplay {
  readonly #accounts = new Map<string, AccountState>()
  /** The accounts by {@link placeOf}: a principal has one at a resource. */
  readonly #places = new Map<string, string>()

  constructor(state: Readonly<Record<string, AccountState>> = {}) {
    for (const [id, one] of Object.entries(state)) this.#set(id, one)
  }

  /** Returns those that have not ended; undefined: there is none. */
  state(): Readonly<Record<string, AccountState>> | undefined {
    return this.#accounts.size === 0 ? undefined : Object.fromEntries(this.#accounts)
  }

  /** Takes a row `upstream_account.…`. Returns its fault, as half a sentence, or null. */
  apply(what: string, detail: UnknownRecord): string | null {
    const { account: id, subject, resource_id: resource, issuer, scopes } = detail
    if (!isText(id)) return 'does not say which account it is about'
    if (what !== 'connected') return this.#end(id, detail)
    const state = { subject, resource, issuer }
    if (!isAccountState(state) || !isTexts(scopes)) return 'does not say what it connects'
    const isTaken = this.#accounts.has(id)
    const other = this.#places.get(placeOf(state))
    this.#set(id, state)
    if (isTaken) return `connects the account ${id} once more`
    return other === undefined ? null : `connects a second account of ${state.subject} at ${state.resource}`
  }

  #set(id: string, state: AccountState): void {
    this.#accounts.set(id, state)
    this.#places.set(placeOf(state), id)
  }

  #end(id: string, { subject }: UnknownRecord): string | null {
    const known = this.#accounts.get(id)
    if (!known) return `ends the account ${id}, which no row connected`
    this.#accounts.delete(id)
    if (this.#places.get(placeOf(known)) === id) this.#places.delete(placeOf(known))
    return known.subject === subject ? null : `ends the account ${id} of ${known.subject}`
  }

  /**
   * Judges the account that an allowed call of a principal at a resource names: connected earlier, for it and
   * there, and not ended. Returns its fault, as half a sentence, or null.
   */
  faultOf(id: unknown, subject: string | null, resource: string | undefined): string | null {
    if (id === undefined) return null
    const known = isText(id) ? this.#accounts.get(id) : undefined
    if (!known) return 'is made with an account that no row connected, or that has ended'
    const isOwn = known.subject === subject && known.resource === resource
    return isOwn ? null : `is made with the account of ${known.subject} at ${known.resource}`
  }

  /** Compares the table with what rows have said. Each fault is a sentence. */
  findings(stored: ReadonlyMap<string, AccountState>): readonly string[] {
    const ids = new Set([...stored.keys(), ...this.#accounts.keys()])
    return [...ids].flatMap((id) => {
      const [has, says] = [stored.get(id), this.#accounts.get(id)].map(accountText)
      return has === says ? [] : [`the account ${id}: the tables have ${has}, the ledger says ${says}`]
    })
  }
}

const placeOf = ({ subject, resource }: AccountState): string => JSON.stringify([subject, resource])

const accountText = (one: AccountState | undefined): string =>
  one ? `${one.subject} at ${one.resource} by ${one.issuer}` : 'nothing'
