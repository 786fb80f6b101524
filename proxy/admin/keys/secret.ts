import { z } from 'zod'
import { writeSetting } from '../../../db/settings.ts'
import { hashSecret, SECRET_MAX_BYTES, SECRET_MIN_BYTES } from '../../../plugins/secrets/hash.ts'
import { change } from '../change.ts'
import { DONE, operation } from '../operation.ts'

/** An operator's secret: bcrypt reads no more than 72 bytes, and fewer than 12 are guessed. */
export const secretText = z
  .string()
  .regex(/^[\x21-\x7e]*$/, 'must be printable ASCII without spaces: it travels in a header')
  .refine(
    (secret) => secret.length >= SECRET_MIN_BYTES && secret.length <= SECRET_MAX_BYTES,
    `must be ${SECRET_MIN_BYTES} to ${SECRET_MAX_BYTES} bytes long`,
  )
  .meta({ minLength: SECRET_MIN_BYTES, maxLength: SECRET_MAX_BYTES })

/**
 * POST /v1/admin/secret/rotate: stores the hash of a new operator secret, which ends the old one's say at
 * once, and the environment variable's (spec §5.1).
 */
export const rotateSecret = operation({
  name: 'rotateSecret',
  summary: 'Sets a new operator secret. The one before is worth nothing from then on.',
  takes: { body: z.strictObject({ new_secret: secretText }) },
  output: z.undefined(),
  status: 204,
  reasons: ['audit_unavailable'],
  run: async (context, { body: { new_secret: secret } }, caller) => {
    const stored = await hashSecret(secret)
    const statements = [writeSetting(context.database, 'admin_secret_hash', stored, caller.at)]
    await change(context, caller, { action: 'admin.secret_rotated', detail: {}, statements })
    return DONE
  },
})
