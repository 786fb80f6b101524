import { hash, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import { cookieOf, setCookie } from '../../../plugins/operators/sessions.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import { ACCOUNT_COOKIE, type AccountAnswer, NotBegun } from './accounts.ts'

/** The longest cookie that is made, or looked at. Characters. */
const MAX_CHARACTERS = 4_000
const PURPOSE = Buffer.from('sallyport account transaction')
/** Another replica may have sealed it. ms. */
const CLOCKS_APART_MS = 30_000
/** The time that somebody may take at the issuer. Seconds. */
const LIFE_S = 600

const transaction = z.strictObject({
  state: z.string(),
  /** RFC 7636. */
  verifier: z.string(),
  issuer: z.string(),
  /** Our client's id there. */
  client: z.string(),
  holder: z.strictObject({
    id: z.string(),
    type: z.enum(['agent', 'user', 'workload', 'operator']),
    ref: z.string(),
  }),
  resource: z.string(),
  endpoint: z.string(),
  scopes: z.array(z.string()),
  person: z.string(),
  returnTo: z.string(),
  /** ms since the epoch. */
  at: z.number(),
})

/** A connection that a browser has begun. It is stored there alone, sealed. */
export type AccountTransaction = Readonly<z.output<typeof transaction>>

/** Makes the cookie of a transaction. Throws if it is too long for a browser. */
export function transactionCookie(key: Buffer, begun: AccountTransaction): string {
  const sealed = sealBytes(key, JSON.stringify(begun), PURPOSE).toString('base64url')
  if (sealed.length > MAX_CHARACTERS) throw new Error('the scopes and addresses are too long for a cookie')
  return setCookie(ACCOUNT_COOKIE, sealed, 'Lax', LIFE_S)
}

/** Opens this browser's own transaction, of this person, that an answer is for. Throws {@link NotBegun}. */
export function ownTransaction(
  key: Buffer,
  { query, headers, person, at }: Pick<AccountAnswer, 'query' | 'headers' | 'person' | 'at'>,
): AccountTransaction {
  const begun = opened(key, cookieOf(headers, ACCOUNT_COOKIE))
  const states = new URLSearchParams(query).getAll('state')
  const age = begun ? at - begun.at : 0
  const isOwn =
    begun !== null &&
    age > -CLOCKS_APART_MS &&
    age < LIFE_S * 1000 &&
    states.length === 1 &&
    isSameText(states[0] ?? '', begun.state) &&
    person === begun.person
  if (!isOwn) throw new NotBegun('this browser has not begun to connect this account, or too long ago')
  return begun
}

/** Names a transaction in claims: it ends once. */
export const transactionDigest = ({ state }: AccountTransaction): string => hash('sha256', `account ${state}`)

/** The instant after which a transaction counts no more at any replica. ms since the epoch. */
export const transactionEnd = ({ at }: AccountTransaction): number => at + 2 * LIFE_S * 1000

function opened(key: Buffer, sealed: string | null): AccountTransaction | null {
  if (sealed === null || sealed.length > MAX_CHARACTERS) return null
  try {
    return transaction.parse(parseJsonObject(openSealed(key, Buffer.from(sealed, 'base64url'), PURPOSE)))
  } catch {
    // Not sealed by us: as good as none.
    return null
  }
}

const isSameText = (one: string, other: string): boolean =>
  timingSafeEqual(hash('sha256', one, 'buffer'), hash('sha256', other, 'buffer'))
