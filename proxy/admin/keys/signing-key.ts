import { serviceEntry } from '../../../plugins/audit/entries.ts'
import type { TokenKeys } from '../../auth/token-keys.ts'
import { json, type Reply } from '../../http/reply.ts'
import type { AdminContext } from '../change.ts'
import type { AdminRequest } from '../principals/principals.ts'

/** POST /v1/admin/signing-key/rotate: access tokens are signed with a new key from now on; those of the old one run out. */
export const rotateSigningKey =
  ({ configuration }: AdminContext, keys: TokenKeys) =>
  async ({ id, at, actor }: AdminRequest): Promise<Reply> => {
    const kid = await keys.rotate((next) => ({
      ...serviceEntry(
        'admin.signing_key_rotated',
        'success',
        { kid: next, via: actor.via },
        at,
        configuration().digest,
      ),
      request_id: id,
      principal_id: actor.id,
      principal_type: 'operator',
    }))
    return json(200, { kid })
  }
