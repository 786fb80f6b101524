import { hkdfSync } from 'node:crypto'
import { z } from 'zod'
import type { AccountHolder, StoredAccount, StoredRevocation } from '../../../db/mcp/accounts.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'

/** The longest token that is taken of an issuer. Characters. */
export const MAX_TOKEN_CHARACTERS = 8_192
/** The time that a revocation is tried. ms. */
export const REVOKED_FOR_MS = 86_400_000

const TOKEN_KEY = 'tokens of accounts at MCP servers'

const ourClient = z.strictObject({
  kind: z.enum(['configured', 'document', 'registered']),
  id: z.string(),
  /** The secret of a registration; null: a public client, or one of `secretRef`. */
  secret: z.string().nullable(),
  /** Read each time that it is used. */
  secretRef: z.string().nullable(),
})

/** Our client at an issuer. */
export type OurClient = Readonly<z.output<typeof ourClient>>

const ecKey = z.looseObject({
  kty: z.literal('EC'),
  crv: z.string(),
  x: z.string(),
  y: z.string(),
  d: z.string(),
})

const tokens = z.strictObject({
  access: z.string(),
  refresh: z.string().nullable(),
  client: ourClient,
  /** The private key that they are bound to; null: none. */
  key: ecKey.nullable(),
  /** The endpoint that they are for, as it was when the account was connected. */
  endpoint: z.string(),
  /** `resource` at the issuer (RFC 8707). */
  audience: z.string(),
  /** True: an operator had named the issuer. */
  named: z.boolean(),
})

/** The tokens of an account, and by which client and for which endpoint they were given. */
export type AccountTokens = Readonly<z.output<typeof tokens>>

const revokedTokens = tokens.pick({ access: true, refresh: true, client: true, named: true })

export type RevokedTokens = Readonly<z.output<typeof revokedTokens>>

const registration = z.strictObject({
  id: z.string(),
  secret: z.string().nullable(),
  redirect: z.string(),
  /** ms since the epoch; null: it has no end. */
  until: z.number().nullable(),
})

export type ClientRegistration = Readonly<z.output<typeof registration>>

/** The members of an account's row that its tokens are sealed with: for no other row do they open. */
export interface SealedPlace {
  readonly account: string
  readonly holder: AccountHolder
  readonly resourceId: string
  readonly issuer: string
}

/**
 * Seals the tokens of accounts (AES-256-GCM), by a key that is made of the principal's own and the service's
 * (HKDF): they do not open without either, nor for another principal, resource or issuer. After the principal
 * was erased nobody opens them.
 */
export class AccountVault {
  readonly #keys: Pick<SubjectKeys, 'find' | 'derived'>

  constructor(keys: Pick<SubjectKeys, 'find' | 'derived'>) {
    this.#keys = keys
  }

  async seal(place: SealedPlace, held: AccountTokens): Promise<string> {
    const key = await this.#keyOf(place.holder)
    if (!key) throw new Error(`${place.holder.ref} has no key to seal tokens with`)
    return sealBytes(key, JSON.stringify(held), Buffer.from(placeText(place))).toString('base64')
  }

  /** Opens the tokens of a row; null: they are not its own, or its principal was erased. */
  async open(row: StoredAccount): Promise<AccountTokens | null> {
    const place = placeOf(row)
    const key = await this.#keyOf(place.holder)
    return key && openAs(tokens, key, row.tokens, placeText(place))
  }

  /** Makes the row by which an issuer is told to revoke tokens, sealed by the service's key alone. */
  revocation({ account_id: id, issuer }: StoredAccount, held: RevokedTokens, at: number): StoredRevocation {
    const { access, refresh, client, named } = held
    const text = JSON.stringify({ access, refresh, client, named })
    const sealed = sealBytes(this.#keys.derived('upstream revocations'), text, Buffer.from(`${id} ${issuer}`))
    return {
      ...{ account_id: id, issuer, tokens: sealed.toString('base64'), tries: 0 },
      ...{ next_at: timestamp(at), until: timestamp(at + REVOKED_FOR_MS) },
    }
  }

  openRevocation({ account_id: id, issuer, tokens: sealed }: StoredRevocation): RevokedTokens | null {
    const key = this.#keys.derived('upstream revocations')
    return openAs(revokedTokens, key, sealed, `${id} ${issuer}`)
  }

  sealClient(issuer: string, made: ClientRegistration): string {
    const key = this.#keys.derived('upstream clients')
    return sealBytes(key, JSON.stringify(made), Buffer.from(issuer)).toString('base64')
  }

  openClient(issuer: string, sealed: string): ClientRegistration | null {
    return openAs(registration, this.#keys.derived('upstream clients'), sealed, issuer)
  }

  async #keyOf({ ref }: AccountHolder): Promise<Buffer | null> {
    const own = await this.#keys.find(ref)
    return own && Buffer.from(hkdfSync('sha256', own, this.#keys.derived(TOKEN_KEY), TOKEN_KEY, 32))
  }
}

const placeOf = (row: StoredAccount): SealedPlace => ({
  account: row.account_id,
  holder: { id: row.principal_id, type: row.principal_type, ref: row.principal_ref },
  resourceId: row.resource_id,
  issuer: row.issuer,
})

const placeText = ({ account, holder: { type, id, ref }, resourceId, issuer }: SealedPlace): string =>
  JSON.stringify([account, type, id, ref, resourceId, issuer])

/** Null: it was not sealed so. */
function openAs<T extends z.ZodType>(
  shape: T,
  key: Buffer,
  sealed: string,
  place: string,
): z.output<T> | null {
  try {
    return shape.parse(parseJsonObject(openSealed(key, Buffer.from(sealed, 'base64'), Buffer.from(place))))
  } catch {
    return null
  }
}
