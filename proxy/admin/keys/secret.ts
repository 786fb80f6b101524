import { createHmac, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { z } from 'zod'
import { enableSecret, readSecret } from '../../../db/operators/secret.ts'
import { endSessionsBySecret } from '../../../db/operators/sessions.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { insertSetting, readSetting, writeSetting } from '../../../db/settings.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { conflict, Refusal } from '../../../plugins/refusal.ts'
import type { StoredSecret } from '../../../plugins/secrets/admin-secret.ts'
import { hashSecret, SECRET_MAX_BYTES, SECRET_MIN_BYTES } from '../../../plugins/secrets/hash.ts'
import { FailureThrottle, senderOf } from '../../../plugins/secrets/throttle.ts'
import { commitChange, commitChanges } from '../operation/change.ts'
import type { AdminCaller } from '../operation/context.ts'
import { emptyOperation, readOperation } from '../operation/operation.ts'
import { instant } from '../operation/shapes.ts'
import { reachableOwners } from '../operators/owners.ts'

/** An operator's secret: bcrypt reads no more than 72 bytes, and fewer than 12 are guessed. */
export const secretText = z
  .string()
  .regex(/^[\x21-\x7e]*$/, 'must be printable ASCII without spaces, because it is sent in a header')
  .refine(
    (secret) => secret.length >= SECRET_MIN_BYTES && secret.length <= SECRET_MAX_BYTES,
    `must be ${SECRET_MIN_BYTES} to ${SECRET_MAX_BYTES} bytes long`,
  )
  .meta({ minLength: SECRET_MIN_BYTES, maxLength: SECRET_MAX_BYTES })

/**
 * POST /v1/admin/secret/rotate: stores the hash of a new operator secret, which ends the old one and the
 * environment variable's at once (spec §5.1). A disabled one stays so, unless the machine itself sets it.
 */
export const rotateSecret = emptyOperation({
  name: 'rotateSecret',
  demands: 'admin.operators',
  action: 'admin.secret_rotated',
  twoPersonKind: 'settings',
  cannotWait:
    'This change needs a second operator, but a new secret is not kept until then. On the gateway’s own machine, run make admin-secret.',
  summary: 'Sets a new operator secret. The previous one stops working at once.',
  takes: { body: z.strictObject({ new_secret: secretText }) },
  reasons: ['audit_unavailable'],
  run: async (context, { body: { new_secret: secret } }, caller) => {
    const { database } = context
    const stored = await hashSecret(secret)
    const enables = isOfMachine(caller) && (await readSecret(database)).disabled
    const rotated = { action: 'admin.secret_rotated', detail: { secret_sha256: hash('sha256', stored) } }
    const notes = [rotated, ...(enables ? [ENABLED] : [])]
    const statements = [
      writeSetting(database, 'admin_secret_hash', stored, caller.at),
      endSessionsBySecret(database),
      ...(enables ? [enableSecret(database)] : []),
    ]
    await commitChanges(context, caller, { statements, notes })
  },
})

const ENABLED = { action: 'admin.secret_enabled', detail: {} }

/** Only a user of the machine itself takes a disabled secret back into service. */
const isOfMachine = ({ actor }: Pick<AdminCaller, 'actor'>): boolean => actor.via === 'socket'

/**
 * GET /v1/admin/secret: if there is one, if it is disabled, and its last use, to the minute. Null: never,
 * since there are operators.
 */
export const showSecret = readOperation({
  name: 'getSecret',
  summary: 'Shows whether the operator secret is set, disabled, and still used.',
  takes: {},
  output: z.strictObject({ is_set: z.boolean(), disabled: z.boolean(), last_used_at: instant.nullable() }),
  run: async ({ database, hasEnvironmentSecret }) => {
    const { hash, disabled } = await readSecret(database)
    const used = await readSetting(database, 'admin_secret_used_at')
    return {
      value: { is_set: hash !== '' || hasEnvironmentSecret, disabled, last_used_at: used ?? null },
    }
  },
})

/**
 * POST /v1/admin/secret/disable. Refuses with `last_owner` if no holder of `admin.operators` has a
 * certificate or a way in by the identity provider.
 */
export const disableSecret = emptyOperation({
  name: 'disableSecret',
  demands: 'admin.operators',
  action: 'admin.secret_disabled',
  twoPersonKind: 'settings',
  summary: 'Disables the operator secret. Only the gateway’s own machine can enable it again.',
  takes: {},
  reasons: ['last_owner', 'audit_unavailable'],
  run: async (context, _input, caller) => {
    const { database } = context
    if ((await readSecret(database)).disabled) return
    const [owner] = await reachableOwners(context, caller.at)
    if (!owner)
      throw new Refusal('last_owner', {
        message: 'First make sure that an operator holds admin.operators and has a certificate.',
      })
    await commitChange(context, caller, {
      action: 'admin.secret_disabled',
      detail: {},
      // Not taken out of service at the same moment.
      assertions: [authorityUnchanged(database)('operator', owner.principal_id, owner.authority_revision)],
      statements: [
        writeSetting(database, 'admin_secret_disabled', 'true', caller.at),
        endSessionsBySecret(database),
      ],
    })
  },
})

export const enableSecretAgain = emptyOperation({
  name: 'enableSecret',
  demands: 'admin.operators',
  action: 'admin.secret_enabled',
  twoPersonKind: 'settings',
  cannotWait: 'Do this on the gateway’s own machine, over the control socket.',
  summary: 'Enables the operator secret again. Works on the control socket only.',
  takes: {},
  reasons: ['machine_only', 'audit_unavailable'],
  run: async (context, _input, caller) => {
    if (!isOfMachine(caller)) throw new Refusal('machine_only')
    const { database } = context
    if (!(await readSecret(database)).disabled) return
    await commitChange(context, caller, { ...ENABLED, statements: [enableSecret(database)] })
  },
})

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
