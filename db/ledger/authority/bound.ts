import type { UnknownRecord } from '../../support/json.ts'
import type { StoredRow } from '../record/leaf.ts'
import type { BoundState } from './ledger-state.ts'
import { type BoundSession, isText, isTexts, listText } from './states.ts'

/** Ways in that belong to no agent, user or workload, and named sets, as the tables have them. */
export interface BoundValues {
  /** The digest of the operator secret's hash; null: none is stored. */
  readonly secret: string | null
  readonly secretIsDisabled: boolean
  /** The thumbprints of the public keys, by key id. */
  readonly signingKeys: ReadonlyMap<string, string>
  /** The sessions by the digest of the cookie. */
  readonly sessions: ReadonlyMap<string, BoundSession>
  /** The capabilities of the named sets. Texts. */
  readonly sets: ReadonlyMap<string, string>
}

/** The sessions that are followed before those that are over are forgotten. */
const MAX_SESSIONS = 10_000
/** The first digits of a session's digest, by which rows have always named it. */
const ROW_DIGITS = 8
/** The ways in of a session that is nobody's in particular: setting the operator secret signs in by it. */
const BY_SECRET: readonly unknown[] = ['secret', 'setup_code']

/** Replays the rows that bind them (docs/ledger.md#replay). */
export class BoundReplay {
  /** Undefined: a row has changed it that does not say to what. */
  #secret: string | null | undefined = null
  #secretIsDisabled = false
  /** Null: no start has said them. */
  #signingKeys: Set<string> | null = null
  readonly #sessions: Map<string, BoundSession>
  readonly #sets: Map<string, string>
  /** Sessions of rows that do not say whose they are. */
  readonly #unsaid: Set<string>

  constructor(state?: BoundState) {
    this.#sessions = new Map(Object.entries(state?.sessions ?? {}))
    this.#sets = new Map(Object.entries(state?.sets ?? {}))
    this.#unsaid = new Set(state?.sessions_of_nobody)
    if (!state) return
    this.#secret = state.secret === false ? undefined : state.secret
    this.#secretIsDisabled = state.secret_is_disabled
    this.#signingKeys = state.signing_keys && new Set(state.signing_keys)
  }

  state(): BoundState {
    return {
      secret: this.#secret === undefined ? false : this.#secret,
      secret_is_disabled: this.#secretIsDisabled,
      signing_keys: this.#signingKeys && [...this.#signingKeys].toSorted(),
      sessions: Object.fromEntries(this.#sessions),
      sessions_of_nobody: [...this.#unsaid].toSorted(),
      sets: Object.fromEntries(this.#sets),
    }
  }

  /** Takes a row. Returns its fault, as half a sentence, or null. */
  apply(row: StoredRow, detail: UnknownRecord): string | null {
    const { action, status } = row
    if (status !== 'success') return null
    if (action === 'admin.secret_rotated') this.#seeSecret(detail.secret_sha256)
    if (action === 'admin.secret_disabled' || action === 'admin.secret_enabled')
      this.#secretIsDisabled = action === 'admin.secret_disabled'
    if (action === 'admin.signing_key_rotated' && isText(detail.kid)) this.#signingKeys?.add(detail.kid)
    if (action === 'capability_set.stored' && isText(detail.set))
      this.#sets.set(detail.set, listText(detail.capabilities))
    if (action === 'capability_set.deleted' && isText(detail.set)) this.#sets.delete(detail.set)
    if (action === 'admin.sign_in') this.#seeSignIn(row, detail)
    if (action === 'admin.signed_out' && isText(detail.session)) this.#end(detail.session)
    if (action === 'authority.bound' && isText(detail.secret_sha256))
      return this.#foundSecret(detail.secret_sha256)
    return action === 'service.started' ? this.#seeStart(detail) : null
  }

  #seeSecret(digest: unknown): void {
    this.#secret = isText(digest) ? digest : undefined
    for (const [id, { who }] of this.#sessions) if (who === null) this.#sessions.delete(id)
  }

  #foundSecret(digest: string): string | null {
    const isSame = this.#secret === undefined || this.#secret === digest
    this.#secret = digest
    return isSame ? null : 'says another operator secret than the rows before it'
  }

  #seeStart({ signing_keys: kids }: UnknownRecord): string | null {
    if (!isTexts(kids)) return null
    const known = this.#signingKeys
    const odd = known && kids.find((kid) => !known.has(kid))
    this.#signingKeys = new Set([...(known ?? []), ...kids])
    return odd ? `starts with the signing key ${odd}, which no row made` : null
  }

  #seeSignIn({ principal_id: who, recorded_at: at }: StoredRow, detail: UnknownRecord): void {
    const { session, session_sha256: digest, session_until: until, via, replaces, ends } = detail
    for (const gone of [replaces, ...(isTexts(ends) ? ends : [])]) if (isText(gone)) this.#end(gone)
    if (isText(digest) && isText(until))
      this.#sessions.set(digest, { who: BY_SECRET.includes(via) ? null : who, until })
    else if (isText(session)) this.#unsaid.add(session)
    if (this.#sessions.size <= MAX_SESSIONS) return
    for (const [id, known] of this.#sessions) if (known.until < at) this.#sessions.delete(id)
  }

  #end(session: string): void {
    this.#unsaid.delete(session)
    for (const id of this.#sessions.keys()) if (id.startsWith(session)) this.#sessions.delete(id)
  }

  /** Compares the tables with what rows have said. Each fault is a sentence. */
  findings(stored: BoundValues, at: number): readonly string[] {
    const [has, says] = [stored.secret ?? 'none', this.#secret === null ? 'none' : this.#secret]
    const keys = this.#signingKeys
    return [
      ...(says === undefined || has === says
        ? []
        : [`the operator secret: the tables have the hash of digest ${has}, the ledger says ${says}`]),
      ...(stored.secretIsDisabled === this.#secretIsDisabled
        ? []
        : [
            `the operator secret: the tables say that it is ${stored.secretIsDisabled ? '' : 'not '}disabled`,
          ]),
      ...[...stored.signingKeys].flatMap(([kid, thumbprint]) =>
        keys === null || (keys.has(kid) && thumbprint === kid)
          ? []
          : [`the signing key ${kid} is in the tables, but no row made it so`],
      ),
      ...[...stored.sets].flatMap(([name, has]) => {
        const said = this.#sets.get(name) ?? 'nothing'
        return has === said ? [] : [`the set ${name}: the tables have ${has}, the ledger says ${said}`]
      }),
      ...[...stored.sessions].flatMap(([digest, session]) => this.#ofSession(digest, session, at)),
    ]
  }

  #ofSession(digest: string, { who, until }: BoundSession, at: number): readonly string[] {
    if (Date.parse(until) <= at || this.#unsaid.has(digest.slice(0, ROW_DIGITS))) return []
    const known = this.#sessions.get(digest)
    return known?.who === who && known.until === until
      ? []
      : [`the session ${digest.slice(0, ROW_DIGITS)} of ${who ?? 'the operator secret'} began by no row`]
  }
}
