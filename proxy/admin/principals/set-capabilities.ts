import { z } from 'zod'
import { setCapabilities } from '../../../db/principals/write.ts'
import { previewOf } from '../conditions/run.ts'
import { by } from '../operation/change.ts'
import { granting } from '../operation/demands.ts'
import type { Kind } from '../operation/kinds.ts'
import { operation } from '../operation/operation.ts'
import { checkIfMatch } from '../operation/parse.ts'
import { notRaisedByItself, ofOperators, ownerStays } from '../operators/owners.ts'
import { changeAuthority } from './authority.ts'
import { changeOf, params, setOf } from './principals.ts'
import { answer, objectOf, PREVIEWED, principalOf, shown } from './view.ts'

const dryRun = z
  .enum(['true', 'false'])
  .transform((text) => text === 'true')
  .exactOptional()
  .meta({
    type: 'string',
    enum: ['true', 'false'],
    description:
      'True: nothing is changed; `rehearsal` says what it would have done to the calls of 30 days.',
  })

/**
 * PATCH …/{id}/capabilities: replaces the whole set (spec §4.4), with one audit row in the same transaction.
 * With `ifMatch` a set that changed since it was read is refused with `precondition_failed` and left alone.
 */
export const patchCapabilities = (kind: Kind) =>
  replacing(kind, `set${kind.noun}Capabilities`, `${kind.type}.capabilities_patched`)

/** The same by the form of the dashboard, whose row says so (spec §6). */
export const setCapabilitiesInForm = (kind: Kind) =>
  replacing(kind, `set${kind.noun}CapabilitiesInForm`, `${kind.type}.capabilities_set`)

const replacing = (kind: Kind, name: string, action: string) =>
  operation({
    name,
    demands: granting(kind),
    action,
    object: objectOf(kind),
    summary: 'Replaces the whole set of capabilities.',
    takes: {
      params,
      query: z.object({ dry_run: dryRun }),
      body: z.strictObject({ capabilities: setOf(kind) }),
    },
    output: PREVIEWED[kind.type],
    status: 200,
    conditional: true,
    revised: true,
    rehearses: (context, { params: { id }, body: { capabilities: held } }) =>
      changeOf(context, kind, id, (principal) => ({ principal, capabilities: held })),
    preview: async (context, { params: { id }, body, ifMatch }, caller) => {
      const record = await principalOf(context, kind, id)
      checkIfMatch(ifMatch, record)
      if (kind.type === 'operator') notRaisedByItself(caller, record, body.capabilities)
      const next = { ...shown(kind, record), capabilities: body.capabilities }
      const rehearsal = await previewOf(context, caller, record, body.capabilities)
      return { value: { ...next, rehearsal } }
    },
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable', ...ofOperators(kind)],
    example: { capabilities: kind.type === 'operator' ? ['admin.read'] : ['llm.chat', 'mcp.tools.call'] },
    run: async (context, { params: { id }, body, ifMatch }, caller) => {
      const { type } = kind
      await changeAuthority(
        context,
        kind,
        caller,
        { id, ifMatch },
        async (record, { capabilities: previous }) => {
          const { revision } = record
          const next = { capabilities: body.capabilities }
          if (type === 'operator') notRaisedByItself(caller, record, body.capabilities)
          return {
            action,
            next,
            detail: { previous },
            assertions: await ownerStays(context, caller.at, record, next),
            statements: [setCapabilities(context.database, { type, id, revision, ...next, ...by(caller) })],
          }
        },
      )
      return answer(kind, await principalOf(context, kind, id))
    },
  })
