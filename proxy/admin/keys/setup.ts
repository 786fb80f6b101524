import { createHmac, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'
import { insertSetting } from '../../../db/settings.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { conflict, Refusal } from '../../../plugins/refusal.ts'
import type { StoredSecret } from '../../../plugins/secrets/admin-secret.ts'
import { hashSecret } from '../../../plugins/secrets/hash.ts'
import { FailureThrottle, senderOf } from '../../../plugins/secrets/throttle.ts'
import { commitChange } from '../operation/change.ts'
import { emptyOperation } from '../operation/operation.ts'
import { secretText } from './secret.ts'

// Without the letters and digits that are read for one another. 20 of 32: 100 bits.
const ALPHABET = 'ABCDEFGHJKLMNPQRSTUVWXYZ23456789'

const setup = z.strictObject({ setup_code: z.string().max(64), new_secret: secretText })

/**
 * Refuses with `conflict` once a secret is stored or no longer wanted, before the body is read: the door is
 * open to anybody (docs/threats.md#a2). A stored secret is never taken away, so it is not asked for again.
 */
export function setupGate(stored: () => Promise<StoredSecret>): Plugin<Arrival, object> {
  let isStored = false
  return {
    name: 'setup',
    admit: async () => {
      if (!isStored) {
        const { hash, disabled } = await stored()
        isStored = hash !== ''
        if (disabled)
          throw conflict(
            'The operator secret is disabled. Use the certificate of an operator, or enable it on the machine of the gateway.',
          )
      }
      if (isStored) throw conflict('An operator secret is already set. Send it as X-Admin-Secret.')
      return {}
    },
  }
}

/**
 * The one-time code of a first boot (docs/threats.md#threat-23): printed on the starting terminal, stored
 * nowhere, worth nothing once a secret is stored. Processes that share a database derive the same one.
 */
export class FirstBootSetup {
  readonly code: string
  readonly #throttle: FailureThrottle
  readonly #key = randomBytes(32)

  /**
   * POST /v1/admin/setup: stores the first operator secret. If two do so at once one wins, the other is a
   * `conflict`.
   */
  readonly operation = emptyOperation({
    name: 'setUp',
    demands: 'admin.operators',
    action: 'admin.secret_rotated',
    summary: 'Sets the first operator secret, with the code that the service printed at its start.',
    takes: { body: setup },
    reasons: ['admin_throttled', 'admin_secret_invalid', 'conflict', 'audit_unavailable'],
    example: { setup_code: 'ABCDE-FGHJK-LMNPQ-RSTUV', new_secret: 'correct-horse-battery' },
    run: async (context, { body: { setup_code: code, new_secret: secret } }, caller) => {
      const { at, remoteAddress } = caller
      this.check(code, remoteAddress)
      const stored = await hashSecret(secret)
      const statements = [insertSetting(context.database, 'admin_secret_hash', stored, at)]
      const detail = { secret_sha256: hash('sha256', stored) }
      await commitChange(context, caller, { action: 'admin.secret_rotated', detail, statements })
    },
  })

  /** `seed`: 32 bytes that nobody outside can know. */
  constructor(seed: Buffer, throttle = new FailureThrottle()) {
    this.#throttle = throttle
    this.code = readableCode(seed)
  }

  /**
   * Refuses a wrong code with `admin_secret_invalid`, and one of an address that has failed too often with
   * `admin_throttled`. The right one passes whoever guesses: nobody guesses 100 bits, and no stranger of the
   * same address keeps out who has read it.
   */
  check(code: string, remoteAddress: string): void {
    if (this.#matches(code)) return
    const sender = senderOf(remoteAddress)
    const wait = this.#throttle.waitS(sender)
    if (wait > 0) throw new Refusal('admin_throttled', { headers: { 'retry-after': String(wait) } })
    this.#throttle.recordFailure(sender)
    throw new Refusal('admin_secret_invalid', {
      message: 'The setup code is wrong. Send the one that the gateway printed when it started.',
    })
  }

  #matches(code: string): boolean {
    const digest = (text: string): Buffer => createHmac('sha256', this.#key).update(text).digest()
    return timingSafeEqual(digest(code.trim().toUpperCase()), digest(this.code))
  }
}

/** Writes the first 20 of some random bytes for people to read: 100 bits. */
export const readableCode = (bytes: Buffer): string =>
  [0, 5, 10, 15].map((from) => wordOf(bytes.subarray(from, from + 5))).join('-')

// 256 is a multiple of 32: each letter is as likely.
const wordOf = (bytes: Buffer): string => [...bytes].map((byte) => ALPHABET[byte % ALPHABET.length]).join('')
