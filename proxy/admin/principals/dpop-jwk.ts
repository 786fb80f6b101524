import { z } from 'zod'
import { setDpopJkt } from '../../../db/principals/write.ts'
import { proofKey } from '../../../plugins/dpop/key.ts'
import { json, type Reply } from '../../http/reply.ts'
import { type AdminContext, change } from '../change.ts'
import { checkIfMatch } from '../etag.ts'
import { parse } from '../parse.ts'
import type { Kind } from './kinds.ts'
import { type AdminBodyRequest, principalOf } from './principals.ts'

const HOUR_MS = 3_600_000

/** A public JWK that may sign DPoP proofs. Its private part, a symmetric or a weak key is refused (WIRE.md §2). */
export const publicJwk = z
  .looseObject({ kty: z.string() })
  .refine(
    (jwk) => proofKey(jwk) !== null,
    'must be a public EC P-256, RSA (2048 to 4096 bits) or Ed25519 key',
  )

/** RFC 7638 thumbprint of a key that {@link publicJwk} has accepted. */
export const jktOf = (jwk: z.output<typeof publicJwk>): string => proofKey(jwk)?.jkt ?? ''

const wrapped = z.strictObject({ jwk: publicJwk, grace_hours: z.number().min(0).max(720).optional() })

/**
 * POST …/{id}/dpop-jwk: registers the key that the principal's DPoP proofs must be by. A key before it stays valid for
 * `grace_hours` (default: the pin plugin's `rotation_grace_hours`). The body is the JWK itself, or `{"jwk": …}`.
 */
export const registerDpopJwk =
  (context: AdminContext, kind: Kind) =>
  async (facts: AdminBodyRequest): Promise<Reply> => {
    const { jwk, grace_hours: asked } = 'jwk' in facts.json ? parse(wrapped, facts.json) : bare(facts.json)
    const record = await principalOf(context, kind, facts.params.id)
    const revision = checkIfMatch(facts.headers['if-match'], record)
    const { principal_id: id, dpop_jkt: previous } = record
    const jkt = jktOf(jwk)
    const hours = asked ?? context.configuration().pin.rotation_grace_hours
    const graceUntil = hours === 0 ? null : facts.at + hours * HOUR_MS
    const { type } = kind
    await change(context, facts, {
      action: `${type}.dpop_jwk_set`,
      detail: { subject: id, dpop_jkt: jkt, previous },
      statements: [
        setDpopJkt(context.database, { type, id, jkt, previous, graceUntil, revision, at: facts.at }),
      ],
    })
    return json(200, { [kind.idField]: id, dpop_jkt: jkt })
  }

function bare(body: unknown): z.output<typeof wrapped> {
  return { jwk: parse(publicJwk, body) }
}
