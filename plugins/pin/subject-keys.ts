import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Database } from '../../db/database.ts'
import { sealedSubjectKey } from '../../db/principals/subject-keys.ts'

const CIPHER = 'aes-256-gcm'
const NONCE_BYTES = 12
const TAG_BYTES = 16
const KEY_BYTES = 32
/** The keys that are remembered, of principals that call. */
const CACHE_MAX = 10_000

/**
 * The keys of commitments, one for each principal, sealed at rest by the service's own
 * (docs/ledger.md#commitments).
 */
export class SubjectKeys {
  readonly #sealer: Buffer
  readonly #stored: ReturnType<typeof sealedSubjectKey>
  /** The keys that were opened last, by the same names. */
  readonly known = new LRUCache<string, Buffer>({ max: CACHE_MAX })

  /** `sealer`: 32 random bytes. */
  constructor(database: Database, sealer: Buffer) {
    this.#sealer = sealer
    this.#stored = sealedSubjectKey(database)
  }

  /** Makes a key for the principal that the ledger knows by this name, and returns it sealed. */
  makeFor(ref: string): string {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, this.#sealer, nonce).setAAD(Buffer.from(ref))
    const sealed = [cipher.update(randomBytes(KEY_BYTES)), cipher.final(), cipher.getAuthTag()]
    return Buffer.concat([nonce, ...sealed]).toString('base64')
  }

  /** Finds the key of the principal that the ledger knows by this name. Throws if it has none. */
  open(ref: string): Buffer | Promise<Buffer> {
    const sealed = this.#stored(ref)
    return sealed instanceof Promise
      ? sealed.then((found) => this.#unseal(ref, found))
      : this.#unseal(ref, sealed)
  }

  /** Finds the same; null if there is none. */
  async find(ref: string): Promise<Buffer | null> {
    return (await this.#stored(ref)) === undefined ? null : this.open(ref)
  }

  /** Derives 32 bytes for another use, the same wherever the sealer is: they say nothing of it. */
  derived(use: string): Buffer {
    return createHmac('sha256', this.#sealer).update(use).digest()
  }

  forget(ref: string): void {
    this.known.delete(ref)
  }

  #unseal(ref: string, sealed: string | undefined): Buffer {
    if (sealed === undefined) throw new Error(`${ref} has no key for its commitments`)
    const bytes = Buffer.from(sealed, 'base64')
    const decipher = createDecipheriv(CIPHER, this.#sealer, bytes.subarray(0, NONCE_BYTES), {
      authTagLength: TAG_BYTES,
    })
    decipher.setAAD(Buffer.from(ref)).setAuthTag(bytes.subarray(-TAG_BYTES))
    const key = Buffer.concat([decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()])
    this.known.set(ref, key)
    return key
  }
}
