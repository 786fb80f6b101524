import { hash } from 'node:crypto'
import { z } from 'zod'
import { enableSecret, readSecret } from '../../../db/operators/secret.ts'
import { endSessionsBySecret } from '../../../db/operators/sessions.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { readSetting, writeSetting } from '../../../db/settings.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { hashSecret, SECRET_MAX_BYTES, SECRET_MIN_BYTES } from '../../../plugins/secrets/hash.ts'
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
