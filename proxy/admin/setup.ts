import { createHmac, randomBytes, randomInt, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'
import { firstSetting } from '../../db/settings.ts'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { hashSecret } from '../../plugins/secrets/hash.ts'
import { Throttle } from '../../plugins/secrets/throttle.ts'
import type { Reply } from '../http/reply.ts'
import { type AdminContext, change } from './change.ts'
import { secretText } from './keys/secret.ts'
import { parse } from './parse.ts'

// Without the letters and digits that are read for one another. 20 of 32: 100 bits.
const ALPHABET = 'ABCDEFGHJKLMNPQRSTUVWXYZ23456789'

const setup = z.strictObject({ setup_code: z.string().max(64), new_secret: secretText })

/**
 * The one-time code of a first boot (SECURITY threat 23): printed on the terminal that started the service, kept in
 * memory alone, and worth nothing once a secret is stored.
 */
export class Setup {
  readonly code: string = Array.from({ length: 4 }, () => word()).join('-')
  readonly #throttle = new Throttle()
  readonly #key = randomBytes(32)

  /** POST /v1/admin/setup: stores the first operator secret. Of two at once one wins, the other is a `conflict`. */
  readonly handler =
    (context: AdminContext) =>
    async (facts: Arrival & JsonBody): Promise<Reply> => {
      const { at, remoteAddress } = facts
      const wait = this.#throttle.waitS(remoteAddress, at)
      if (wait > 0) throw new Refusal('admin_throttled', { headers: { 'retry-after': String(wait) } })
      const { setup_code: code, new_secret: secret } = parse(setup, facts.json)
      if (!this.#matches(code)) {
        this.#throttle.failed(remoteAddress, at)
        throw new Refusal('admin_secret_invalid', { message: 'The setup code is wrong.' })
      }
      const statements = [firstSetting(context.database, 'admin_secret_hash', await hashSecret(secret), at)]
      const actor = { id: 'admin', via: 'setup_code' } as const
      await change(context, { ...facts, actor }, { action: 'admin.secret_rotated', detail: {}, statements })
      return { status: 204 }
    }

  #matches(code: string): boolean {
    const digest = (text: string): Buffer => createHmac('sha256', this.#key).update(text).digest()
    return timingSafeEqual(digest(code.trim().toUpperCase()), digest(this.code))
  }
}

const word = (): string => Array.from({ length: 5 }, () => ALPHABET[randomInt(ALPHABET.length)]).join('')
