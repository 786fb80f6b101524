import { z } from 'zod'
import { listAttachedCas } from '../../../db/principals/attached-cas.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { spiffePrincipal } from '../../../db/principals/spiffe.ts'
import {
  agentsTrustingOnlyFirst,
  copyCaTrust,
  distrustCa,
  trustCa,
  trustedCasOf,
} from '../../../db/principals/trusted-cas.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { changeAuthor, commitChange, commitChanges, retryIfOvertaken } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { AGENT } from '../operation/kinds.ts'
import { EMPTY_RESULT, operation } from '../operation/operation.ts'
import { author, idParams, instant, sha256 } from '../operation/shapes.ts'
import { serializedByPrincipal } from './authority.ts'
import { principalByParams, principalOf } from './view.ts'

const digest = z.string().regex(/^[0-9a-f]{64}$/, 'must be the SHA-256 of a CA, in lower-case hex')

const trustedCas = z
  .strictObject({
    own_bundle: z
      .boolean()
      .meta({ description: 'True: its enrollment named CAs of its own, and no other CA counts.' }),
    cas: z.array(
      z.strictObject({
        digest: sha256,
        subject: z.string(),
        not_after: instant,
        trusted_at: instant,
        trusted_by: author,
      }),
    ),
  })
  .meta({ id: 'TrustedCas' })

/** GET /v1/admin/agents/{id}/trusted-cas: the attached CAs that vouch for an agent, oldest first. */
export const listTrustedCas = operation({
  name: 'listAgentTrustedCas',
  demands: 'admin.read',
  action: 'admin.read',
  summary: 'Lists the attached CAs that vouch for an agent that is identified by its SPIFFE id.',
  takes: { params: idParams },
  output: trustedCas,
  status: 200,
  reasons: ['not_found'],
  run: async (context, { params: { id } }) => ({ value: await trustedCasView(context, id) }),
})

/**
 * POST /v1/admin/agents/{id}/trusted-cas: has an attached CA vouch for an agent: any SVID of its id that
 * chains to that CA is this agent, from the next request on (docs/protocol.md#trusted-cas). Refuses with
 * `conflict` if it does already, and if the agent is not known by its SPIFFE id, or rests on a bundle of its
 * own.
 */
export const trustCaForAgent = operation({
  name: 'trustCaForAgent',
  demands: 'admin.enroll',
  action: 'ca.trusted',
  twoPersonKind: 'trust',
  object: principalByParams(AGENT),
  summary:
    'Lets an attached CA vouch for an agent: an SVID with its id, issued by that CA, is then this agent.',
  takes: { params: idParams, body: z.strictObject({ digest }) },
  output: trustedCas,
  status: 200,
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  example: { digest: 'f'.repeat(64) },
  run: (context, { params: { id }, body }, caller) =>
    serializedByPrincipal(context, AGENT, id, async () => {
      const { database } = context
      const record = await principalOf(context, AGENT, id)
      await checkRestsOnAttached(context, record)
      await checkAttached(context, body)
      await commitChange(
        context,
        caller,
        {
          action: 'ca.trusted',
          detail: { digest: body.digest, subjects: [record.principal_ref] },
          statements: [trustCa(database, id, { digest: body.digest, ...changeAuthor(caller) })],
        },
        'conflict',
      )
      return { value: await trustedCasView(context, id) }
    }),
})

/** DELETE /v1/admin/agents/{id}/trusted-cas/{digest}: holds at the agent's very next call. */
export const distrustCaForAgent = operation({
  name: 'distrustCaForAgent',
  demands: 'admin.enroll',
  action: 'ca.distrusted',
  twoPersonKind: 'trust',
  object: principalByParams(AGENT),
  summary: 'Stops a CA from vouching for an agent.',
  takes: { params: idParams.extend({ digest: z.string() }) },
  output: z.undefined(),
  status: 204,
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { id, digest: gone } }, caller) => {
    const { database } = context
    const record = await principalOf(context, AGENT, id)
    const found = (await trustedCasOf(database, id)).some(({ digest: one }) => one === gone)
    if (!found) throw new Refusal('not_found', { message: 'No CA with this digest vouches for this agent.' })
    await commitChange(context, caller, {
      action: 'ca.distrusted',
      detail: { digest: gone, subjects: [record.principal_ref] },
      statements: [distrustCa(database, id, gone)],
    })
    return EMPTY_RESULT
  },
})

/** The agents that one row names. */
const PORTION = 200

/**
 * POST /v1/admin/agents/trusted-cas: has an attached CA vouch for every agent that another one vouches for,
 * deactivated ones too, so that a CA can be replaced without an outage (docs/protocol.md#trusted-cas). All of
 * them, or none.
 */
export const trustReplacementCa = operation({
  name: 'trustCaAs',
  demands: 'admin.enroll',
  action: 'ca.trusted',
  twoPersonKind: 'trust',
  summary: 'Lets an attached CA vouch for every agent that another CA vouches for.',
  takes: { body: z.strictObject({ digest, as: digest }) },
  output: z.strictObject({ agents: z.int() }),
  status: 200,
  reasons: ['precondition_failed', 'audit_unavailable'],
  example: { digest: 'f'.repeat(64), as: '0'.repeat(64) },
  run: async (context, { body: { digest: added, as: other } }, caller) => {
    const { database } = context
    await checkAttached(context, { digest: added, as: other })
    const count = await retryIfOvertaken(
      () => agentsTrustingOnlyFirst(database, other, added, eventLoopTurn),
      async (agents) => {
        if (agents.length === 0) return 0
        await commitChanges(context, caller, {
          statements: [
            copyCaTrust(database, other, agents.length, { digest: added, ...changeAuthor(caller) }),
          ],
          notes: portionsOf(agents, PORTION).map((subjects) => ({
            action: 'ca.trusted',
            detail: { digest: added, as: other, subjects },
          })),
        })
        return agents.length
      },
    )
    return { value: { agents: count } }
  },
})

async function trustedCasView(context: AdminContext, id: string) {
  const { database } = context
  const record = await principalOf(context, AGENT, id)
  const known = await spiffeAgent(context, record)
  return { own_bundle: (known?.bundlePem ?? null) !== null, cas: await trustedCasOf(database, id) }
}

async function spiffeAgent(
  { database }: AdminContext,
  { principal_id: id, spiffe_id: spiffeId }: PrincipalRecord,
) {
  const found = spiffeId === null ? undefined : await spiffePrincipal(database, spiffeId)
  return found?.principal_id === id ? found : undefined
}

async function checkRestsOnAttached(context: AdminContext, record: PrincipalRecord): Promise<void> {
  const known = await spiffeAgent(context, record)
  if (!known) throw new Refusal('conflict', { message: 'This agent is not identified by a SPIFFE id.' })
  if (known.bundlePem === null) return
  throw new Refusal('conflict', {
    message:
      'This agent relies on the CAs that its enrollment named. To change them, deactivate it and enroll it again.',
  })
}

/** Refuses with `body_unprocessable` each field that names no attached CA of the kind `spiffe`. */
async function checkAttached(
  { database }: AdminContext,
  named: Readonly<Record<string, string>>,
): Promise<void> {
  const attached = await listAttachedCas(database, 'spiffe')
  const problems = Object.entries(named)
    .filter(([, one]) => !attached.some((ca) => ca.digest === one))
    .map(([field]) => ({ field, message: 'is not an attached CA of the kind spiffe' }))
  if (problems.length > 0) throw unprocessableBody(problems)
}
