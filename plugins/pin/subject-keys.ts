import { createHmac, randomBytes } from 'node:crypto'
import type { Database } from '../../db/database.ts'
import { sealedSubjectKey } from '../../db/principals/subject-keys.ts'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import { openSealed, sealBytes } from '../secrets/seal.ts'

const KEY_BYTES = 32
/** The keys that are remembered, of principals that call. */
const CACHE_MAX = 10_000

/** The keys of commitments, one for each principal, sealed at rest (docs/ledger.md#commitments). */
export class SubjectKeys {
  readonly #sealer: Buffer
  readonly #stored: ReturnType<typeof sealedSubjectKey>
  /** The keys that were opened last, by the same names. */
  readonly known = boundedCache<Buffer>(CACHE_MAX)

  /** `sealer`: 32 random bytes. */
  constructor(database: Database, sealer: Buffer) {
    this.#sealer = sealer
    this.#stored = sealedSubjectKey(database)
  }

  /** Makes a key for the principal that the ledger knows by this name, and returns it sealed. */
  makeFor(ref: string): string {
    return sealBytes(this.#sealer, randomBytes(KEY_BYTES), Buffer.from(ref)).toString('base64')
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
    const key = openSealed(this.#sealer, Buffer.from(sealed, 'base64'), Buffer.from(ref))
    this.known.set(ref, key)
    return key
  }
}
