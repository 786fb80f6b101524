import { createHmac, hash } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import { findGrant, removeGrants } from '../../../db/people/grants.ts'
import {
  consumePeopleState,
  findPeopleState,
  openShares,
  type PeopleState,
  putPeopleState,
  removeGrantStates,
  removeOldest,
  removePeopleState,
} from '../../../db/people/states.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { claimOnce, isClaimed } from '../../../db/single-uses.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import { grantEndedNote } from '../../../plugins/people/rows.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import { senderOf } from '../../../plugins/secrets/throttle.ts'
import { currentUnit } from './unit.ts'

/** The sign-ins that are open at once: anybody may begin one. */
const MAX_OPEN_SIGN_INS = 600
const OPEN_KINDS = ['Interaction', 'PushedAuthorizationRequest']

/** Processes of one client refresh at once: that is no theft. ms, and the uses in all. */
const REFRESH_LEEWAY_MS = 10_000
const MAX_REFRESH_USES = 3

export interface PeopleStateDependencies {
  readonly database: Database
  /** 32 bytes that seal payloads, the same in all processes of the service. */
  readonly key: Buffer
  readonly configDigest: string
  /** Finds a client that is not kept in the database; undefined: there is none. */
  readonly clientOf: (id: string) => object | undefined
}

const digestOf = (id: string): string => hash('sha256', id)

/** The payload of the library, and how often its refresh token was used. */
interface SealedPayload extends UnknownRecord {
  readonly uses?: number
}

/**
 * The database as the library sees it, one for each kind of its objects. It writes into the unit of the request
 * under way, and reads through it. Ids are kept as SHA-256 alone, and contents are sealed.
 */
export class PeopleStateAdapter {
  readonly #kind: string
  readonly #means: PeopleStateDependencies

  constructor(kind: string, means: PeopleStateDependencies) {
    this.#kind = kind
    this.#means = means
  }

  async upsert(id: string, payload: SealedPayload, expiresInS: number): Promise<void> {
    const unit = currentUnit()
    const { database } = this.#means
    const { at } = unit.arrival
    // Clients are not kept, and neither is the session of somebody who has not signed in.
    if (this.#kind === 'Client' || (this.#kind === 'Session' && payload.accountId === undefined)) return
    const expiresAt = at + expiresInS * 1000
    if (this.#kind === 'ReplayDetection')
      return unit.write(claimOnce(database, digestOf(`people replay ${id}`), expiresAt))
    const { grantId, uid, userCode } = payload
    const idSha256 = digestOf(id)
    const before = await this.#stateOf(idSha256)
    const isOpen = OPEN_KINDS.includes(this.#kind)
    const sender = isOpen ? this.#senderOf(payload) : null
    if (!before && isOpen) await this.#makeRoom(sender)
    const state: PeopleState = {
      kind: this.#kind,
      idSha256,
      grantId: typeof grantId === 'string' ? grantId : this.#kind === 'Grant' ? id : null,
      uid: typeof uid === 'string' ? digestOf(uid) : null,
      userCode: typeof userCode === 'string' ? digestOf(userCode) : null,
      sender,
      payload: this.#seal(idSha256, payload),
      consumedAt: before?.consumedAt ?? null,
      expiresAt,
    }
    unit.write(putPeopleState(database, state))
    unit.keep(state)
  }

  async find(id: string): Promise<object | undefined> {
    if (this.#kind === 'Client') return this.#means.clientOf(id)
    if (this.#kind === 'ReplayDetection')
      return (await isClaimed(this.#means.database)(digestOf(`people replay ${id}`))) ? {} : undefined
    return this.#open(await this.#stateOf(digestOf(id)))
  }

  findByUid = (uid: string): Promise<object | undefined> => this.#findBy('uid', 'uid', uid)

  findByUserCode = (code: string): Promise<object | undefined> => this.#findBy('user_code', 'userCode', code)

  /** Uses a thing up. Of two that do so at once the second's unit is rolled back. */
  async consume(id: string): Promise<void> {
    const unit = currentUnit()
    const found = await this.#stateOf(digestOf(id))
    if (!found) throw new Error(`there is no ${this.#kind} to consume`)
    if (this.#kind === 'AuthorizationCode') unit.usesCode = true
    const content = this.#contentOf(found)
    const payload = this.#seal(found.idSha256, { ...content, uses: (content.uses ?? 0) + 1 })
    const consumedAt = found.consumedAt ?? unit.arrival.at
    unit.write(consumePeopleState(this.#means.database, found, payload, consumedAt))
    unit.keep({ ...found, payload, consumedAt })
  }

  async destroy(id: string): Promise<void> {
    const unit = currentUnit()
    const idSha256 = digestOf(id)
    unit.write(removePeopleState(this.#means.database, this.#kind, idSha256))
    unit.drop(this.#kind, idSha256)
    if (this.#kind === 'Grant') await this.#endGrant(id)
  }

  async revokeByGrantId(grantId: string): Promise<void> {
    const unit = currentUnit()
    unit.write(removeGrantStates(this.#means.database, [grantId], this.#kind))
  }

  /** Records the end of a grant that tokens were issued by: a code or a refresh token was shown again. */
  async #endGrant(id: string): Promise<void> {
    const unit = currentUnit()
    const { database, configDigest } = this.#means
    const grant = await findGrant(database, id)
    const user = grant && (await findPrincipal(database, 'user', grant.principalId))
    if (!user || unit.removedGrants.has(id)) return
    unit.removedGrants.add(id)
    const why = unit.arrival.path === '/oauth/revoke' ? 'person' : 'reuse'
    unit.write(removeGrants(database, [id]))
    unit.record({
      ...noteEntry(grantEndedNote(grant, user.principal_ref, why), unit.arrival.at, configDigest),
      request_id: unit.arrival.id,
      principal_id: user.principal_ref,
      principal_type: 'user',
    })
  }

  /** Ends the oldest sign-in of whoever has most of them open, if there is no room for one more. */
  async #makeRoom(sender: string | null): Promise<void> {
    const { database } = this.#means
    const unit = currentUnit()
    const { total, fullest } = await openShares(database, OPEN_KINDS, sender, unit.arrival.at)
    if (total >= MAX_OPEN_SIGN_INS)
      unit.write(removeOldest(database, OPEN_KINDS, fullest, total - MAX_OPEN_SIGN_INS + 1))
  }

  /** Names whose share a sign-in is of: the person's, once known; until then that of an address. */
  #senderOf({ session }: SealedPayload): string {
    const { remoteAddress } = currentUnit().arrival
    const sender = isObject(session) ? ['person', session.accountId] : ['address', senderOf(remoteAddress)]
    return createHmac('sha256', this.#means.key).update(JSON.stringify(sender)).digest('base64url')
  }

  async #stateOf(idSha256: string): Promise<PeopleState | undefined> {
    const unit = currentUnit()
    const kept = unit.kept(this.#kind, idSha256)
    if (kept !== undefined) return kept ?? undefined
    return findPeopleState(this.#means.database, this.#kind, 'id_sha256', idSha256, unit.arrival.at)
  }

  async #findBy(column: 'uid' | 'user_code', member: 'uid' | 'userCode', id: string) {
    const unit = currentUnit()
    const digest = digestOf(id)
    const kept = unit.keptBy(this.#kind, (state) => state[member] === digest)
    if (kept) return this.#open(kept)
    const found = await findPeopleState(this.#means.database, this.#kind, column, digest, unit.arrival.at)
    return found && unit.kept(this.#kind, found.idSha256) !== null ? this.#open(found) : undefined
  }

  /** Opens a state as the library reads it: `consumed` in seconds, if it counts as used up. */
  #open(state: PeopleState | undefined): object | undefined {
    if (!state) return undefined
    const { uses = 0, ...payload } = this.#contentOf(state)
    const { consumedAt } = state
    const { at } = currentUnit().arrival
    const isLenient =
      this.#kind === 'RefreshToken' &&
      consumedAt !== null &&
      at - consumedAt <= REFRESH_LEEWAY_MS &&
      uses < MAX_REFRESH_USES
    return consumedAt === null || isLenient
      ? payload
      : { ...payload, consumed: Math.floor(consumedAt / 1000) }
  }

  #seal(idSha256: string, payload: object): string {
    const purpose = Buffer.from(`${this.#kind} ${idSha256}`)
    return sealBytes(this.#means.key, JSON.stringify(payload), purpose).toString('base64url')
  }

  #contentOf({ idSha256, payload }: PeopleState): SealedPayload {
    const purpose = Buffer.from(`${this.#kind} ${idSha256}`)
    const opened = openSealed(this.#means.key, Buffer.from(payload, 'base64url'), purpose)
    const content: unknown = JSON.parse(opened.toString())
    if (!isObject(content)) throw new Error(`a ${this.#kind} holds no object`)
    return content
  }
}
