import { z } from 'zod'
import { signedCalls } from '../../../db/ledger/read/signed.ts'
import { authorityState } from '../../../db/principals/authority.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { setDpopJkt } from '../../../db/principals/write.ts'
import { isObject } from '../../../db/support/json.ts'
import { proofKey } from '../../../plugins/dpop/key.ts'
import { conflict, notFound } from '../../../plugins/refusal.ts'
import { changeAuthor } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import { capabilityToEnroll } from '../operation/kinds.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { idParams, instant } from '../operation/shapes.ts'
import { changeAuthority, graceHours, graceUntil, predecessorInGrace } from './authority.ts'
import { principalByParams, principalIdMember, principalOf, withId } from './view.ts'

/** A public JWK that may sign DPoP proofs: not private, symmetric or weak (docs/protocol.md#dpop-keys). */
export const dpopPublicJwk = z
  .looseObject({ kty: z.string() })
  .refine(
    (jwk) => proofKey(jwk) !== null,
    'must be a public EC P-256, RSA (2048 to 4096 bits) or Ed25519 key',
  )
  .meta({ description: 'A public JWK: EC P-256, RSA of 2048 to 4096 bits, or Ed25519.' })

/** RFC 7638 thumbprint of a key that {@link dpopPublicJwk} has accepted. */
export const jktOf = (jwk: z.output<typeof dpopPublicJwk>): string => proofKey(jwk)?.jkt ?? ''

/** The keys of a state in which `jkt` has taken the place of the one before. `until`: of that one's grace. */
export const registeredKeys = (jkt: string, previous: string | null, until: number | null) =>
  [[jkt, null], ...predecessorInGrace(previous === jkt ? null : previous, until)] as const

const wrapped = z.strictObject({ jwk: dpopPublicJwk, grace_hours: graceHours.optional() })

/** The most members of a JWK, and of its wrapping: more only cost the time to look at them. */
const MAX_MEMBERS = 64

const hasFewMembers = (value: unknown): boolean =>
  !isObject(value) || Object.keys(value).length <= MAX_MEMBERS

/** The JWK itself, or `{"jwk": …}`. Not a union: the faults are those of the intended form. */
const registration = z
  .unknown()
  .refine((value) => hasFewMembers(value) && (!isObject(value) || hasFewMembers(value.jwk)), {
    message: `must have at most ${MAX_MEMBERS} members`,
  })
  .transform((value, context): z.output<typeof wrapped> => {
    const bare = !isObject(value) || !('jwk' in value)
    const parsed = wrapped.safeParse(bare ? { jwk: value } : value)
    if (parsed.success) return parsed.data
    for (const issue of parsed.error.issues) {
      const path = bare ? issue.path.slice(1) : issue.path
      // An issue of zod's own, whole but for the value that it is about.
      context.issues.push({ ...issue, path, input: value } as z.core.$ZodRawIssue)
    }
    return z.NEVER
  })
  .meta({ anyOf: [z.toJSONSchema(wrapped, { io: 'input' }), z.toJSONSchema(dpopPublicJwk, { io: 'input' })] })

/**
 * POST …/{id}/dpop-jwk: registers the key of the principal's DPoP proofs. The one before stays valid for
 * `grace_hours` (default: the pin plugin's).
 */
export const registerDpopJwk = (kind: PrincipalKind) =>
  operation({
    name: `set${kind.noun}DpopKey`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.dpop_jwk_set`,
    object: principalByParams(kind),
    summary: 'Registers the key that must sign DPoP proofs: the JWK itself, or {"jwk": …}.',
    takes: { params: idParams, body: registration },
    output: withId(kind, { dpop_jkt: z.string() }),
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id }, body: { jwk, grace_hours: hours }, ifMatch }, caller) => {
      const { type } = kind
      const jkt = jktOf(jwk)
      const until = graceUntil(context, caller.at, hours)
      await changeAuthority(context, kind, caller, { id, ifMatch }, ({ dpop_jkt: previous, revision }) => ({
        action: `${type}.dpop_jwk_set`,
        next: { dpop_jkts: registeredKeys(jkt, previous, until) },
        detail: { dpop_jkt: jkt, previous },
        statements: [
          setDpopJkt(context.database, {
            ...{ type, id, jkt, previous, graceUntil: until, revision },
            ...changeAuthor(caller),
          }),
        ],
      }))
      return { value: { ...principalIdMember(kind, id), dpop_jkt: jkt } }
    },
  })

const jkt = z.string().meta({ description: 'RFC 7638 thumbprint. base64url.' })

/** The keys that sign the calls of a principal by the certificates that count now; of an SVID, by any. */
async function keysSeen({ database }: AdminContext, record: PrincipalRecord, at: number) {
  const { thumbprints } = await authorityState(database, record, at)
  const pinned = new Set(thumbprints.map(([thumbprint]) => thumbprint))
  return signedCalls(database, record.principal_ref, record.enrollment_method === 'spiffe' ? null : pinned)
}

export const listProofKeys = (kind: PrincipalKind) =>
  readOperation({
    name: `list${kind.noun}ProofKeys`,
    demands: 'admin.audit',
    summary: `Lists the keys that have signed the newest calls of the ${kind.type}.`,
    takes: { params: idParams },
    output: z.strictObject({
      keys: z.array(
        z.strictObject({
          dpop_jkt: jkt,
          calls: z.int(),
          first_at: instant,
          last_at: instant,
          request_ids: z.array(z.string()),
        }),
      ),
      unsigned_calls: z.int().meta({ description: 'The calls among them that came without a proof.' }),
    }),
    reasons: ['not_found'],
    run: async (context, { params: { id } }, { at }) => {
      const { keys, unsigned } = await keysSeen(context, await principalOf(context, kind, id), at)
      return {
        value: {
          keys: keys.map(({ jkt: seen, calls, first, last, requests }) => ({
            ...{ dpop_jkt: seen, calls, first_at: first, last_at: last, request_ids: requests },
          })),
          unsigned_calls: unsigned,
        },
      }
    },
  })

/**
 * POST …/{id}/dpop-jwk/{jkt}/adopt: registers a key that has signed calls of a principal without one. The row
 * names the newest of these calls.
 */
export const adoptDpopKey = (kind: PrincipalKind) =>
  operation({
    name: `adopt${kind.noun}DpopKey`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.dpop_jwk_set`,
    object: principalByParams(kind),
    summary: `Registers the key that signs the calls of the ${kind.type} already, if it has none.`,
    takes: { params: idParams.extend({ jkt: z.string() }) },
    output: withId(kind, { dpop_jkt: jkt }),
    conditional: true,
    reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id, jkt: wanted }, ifMatch }, caller) => {
      const { type } = kind
      await changeAuthority(context, kind, caller, { id, ifMatch }, async (record) => {
        if (record.dpop_jkt !== null)
          throw conflict(`This ${type} has a proof key. Register another in its place.`)
        const { keys } = await keysSeen(context, record, caller.at)
        const seen = keys.find((one) => one.jkt === wanted)
        if (!seen)
          throw notFound(
            `No call of this ${type} was signed by this key lately, by a certificate that counts.`,
          )
        return {
          action: `${type}.dpop_jwk_set`,
          next: { dpop_jkts: registeredKeys(wanted, null, null) },
          detail: { dpop_jkt: wanted, previous: null, seen_in: seen.requests },
          statements: [
            setDpopJkt(context.database, {
              ...{ type, id, jkt: wanted, previous: null, graceUntil: null, revision: record.revision },
              ...changeAuthor(caller),
            }),
          ],
        }
      })
      return { value: { ...principalIdMember(kind, id), dpop_jkt: wanted } }
    },
  })

export const endDpopKey = (kind: PrincipalKind) =>
  emptyOperation({
    name: `end${kind.noun}DpopKey`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.dpop_key_ended`,
    object: principalByParams(kind),
    summary: 'Ends the proof key before the current one at once, which is still in its grace.',
    takes: { params: idParams.extend({ jkt: z.string() }) },
    conditional: true,
    reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id, jkt }, ifMatch }, caller) => {
      const { type } = kind
      await changeAuthority(context, kind, caller, { id, ifMatch }, (record, { dpop_jkts: keys }) => {
        const { dpop_jkt: current, revision } = record
        if (current === null || !keys.some(([known]) => known === jkt))
          throw notFound(`This is no key that the ${type}'s proofs may be of.`)
        if (current === jkt)
          throw conflict('This is the current key. Register another in its place, with a grace of 0 hours.')
        return {
          action: `${type}.dpop_key_ended`,
          next: { dpop_jkts: [[current, null]] },
          detail: { ended: [jkt] },
          statements: [
            setDpopJkt(context.database, {
              ...{ type, id, jkt: current, previous: null, graceUntil: null, revision },
              ...changeAuthor(caller),
            }),
          ],
        }
      })
    },
  })
