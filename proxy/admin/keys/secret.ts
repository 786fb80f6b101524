import { z } from 'zod'
import { writeSetting } from '../../../db/settings.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import type { Actor } from '../../../plugins/secrets/admin-secret.ts'
import { hashSecret, SECRET_MAX_BYTES, SECRET_MIN_BYTES } from '../../../plugins/secrets/hash.ts'
import type { Reply } from '../../http/reply.ts'
import { type AdminContext, change } from '../change.ts'
import { parse } from '../parse.ts'

/** An operator's secret: bcrypt reads no more than 72 bytes, and fewer than 12 are guessed. */
export const secretText = z
  .string()
  .regex(/^[\x21-\x7e]*$/, 'must be printable ASCII without spaces: it travels in a header')
  .refine(
    (secret) => secret.length >= SECRET_MIN_BYTES && secret.length <= SECRET_MAX_BYTES,
    `must be ${SECRET_MIN_BYTES} to ${SECRET_MAX_BYTES} bytes long`,
  )

const newSecret = z.strictObject({ new_secret: secretText })

/**
 * POST /v1/admin/secret/rotate: stores the hash of a new operator secret, which ends the old one's say at once, and the
 * environment variable's (spec §5.1).
 */
export const rotateSecret =
  (context: AdminContext) =>
  async (facts: Arrival & JsonBody & { readonly actor: Actor }): Promise<Reply> => {
    const { new_secret: secret } = parse(newSecret, facts.json)
    const stored = await hashSecret(secret)
    const statements = [writeSetting(context.database, 'admin_secret_hash', stored, facts.at)]
    await change(context, facts, { action: 'admin.secret_rotated', detail: {}, statements })
    return { status: 204 }
  }
