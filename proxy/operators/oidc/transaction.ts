import { z } from 'zod'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'

/** The longest cookie that is looked at. Characters. */
const MAX_CHARACTERS = 4096
const PURPOSE = Buffer.from('sallyport sign-in transaction')

/** Another replica may have sealed it. ms. */
const CLOCKS_APART_MS = 30_000

/** The time that somebody may take to sign in with the provider. Seconds. */
export const TRANSACTION_LIFE_S = 600

const transaction = z.strictObject({
  state: z.string(),
  nonce: z.string(),
  /** RFC 7636. */
  verifier: z.string(),
  issuer: z.string(),
  client: z.string(),
  /** The provider's redirect URL back to us. */
  redirect: z.string(),
  next: z.string(),
  /** The digest of the session that the browser had. Absent: none. */
  replaces: z.string().exactOptional(),
  /** ms since the epoch. */
  at: z.number(),
})

/** A sign-in that a browser has begun. It is stored there alone, sealed: nothing is kept of strangers. */
export type SignInTransaction = Readonly<z.output<typeof transaction>>

/** Seals a transaction with 32 bytes that all processes of the service have. base64url. */
export const sealTransaction = (key: Buffer, begun: SignInTransaction): string =>
  sealBytes(key, JSON.stringify(begun), PURPOSE).toString('base64url')

/** Opens a text of {@link sealTransaction}; null if it is anything else, or too old. */
export function openTransaction(key: Buffer, sealed: string | null, at: number): SignInTransaction | null {
  if (sealed === null || sealed.length > MAX_CHARACTERS) return null
  const begun = transaction.safeParse(decryptTransaction(key, sealed))
  if (!begun.success) return null
  const age = at - begun.data.at
  return age > -CLOCKS_APART_MS && age < TRANSACTION_LIFE_S * 1000 ? begun.data : null
}

function decryptTransaction(key: Buffer, sealed: string): unknown {
  try {
    return parseJsonObject(openSealed(key, Buffer.from(sealed, 'base64url'), PURPOSE))
  } catch {
    // Not sealed by us: as good as none.
    return null
  }
}
