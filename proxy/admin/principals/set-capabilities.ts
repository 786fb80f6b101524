import { z } from 'zod'
import { setCapabilities } from '../../../db/principals/write.ts'
import { previewOf } from '../conditions/run.ts'
import { changeAuthor } from '../operation/change.ts'
import type { PrincipalKind } from '../operation/kinds.ts'
import { capabilityToGrant } from '../operation/kinds.ts'
import { checkIfMatch, operation } from '../operation/operation.ts'
import { dryRun, idParams } from '../operation/shapes.ts'
import { assertOwnerRemains, operatorRefusals, refuseSelfGrant } from '../operators/owners.ts'
import { changeAuthority } from './authority.ts'
import { capabilitySetSchema, changeOf } from './principals.ts'
import { PREVIEW_SHAPES, principalByParams, principalOf, principalResult, principalView } from './view.ts'

/** PATCH …/{id}/capabilities: replaces the set (spec §4.4), with one audit row in the same transaction. */
export const patchCapabilities = (kind: PrincipalKind) =>
  replaceOperation(kind, `set${kind.noun}Capabilities`, `${kind.type}.capabilities_patched`)

/** The same by the form of the dashboard, whose row says so (spec §6). */
export const setCapabilitiesInForm = (kind: PrincipalKind) =>
  replaceOperation(kind, `set${kind.noun}CapabilitiesInForm`, `${kind.type}.capabilities_set`)

const replaceOperation = (kind: PrincipalKind, name: string, action: string) =>
  operation({
    name,
    demands: capabilityToGrant(kind),
    action,
    object: principalByParams(kind),
    summary: 'Replaces the whole set of capabilities.',
    takes: {
      params: idParams,
      query: z.object({ dry_run: dryRun }),
      body: z.strictObject({ capabilities: capabilitySetSchema(kind) }),
    },
    output: PREVIEW_SHAPES[kind.type],
    conditional: true,
    revised: true,
    rehearses: (context, { params: { id }, body: { capabilities: held } }) =>
      changeOf(context, kind, id, (principal) => ({ principal, capabilities: held })),
    preview: async (context, { params: { id }, body, ifMatch }, caller) => {
      const record = await principalOf(context, kind, id)
      checkIfMatch(ifMatch, record)
      if (kind.type === 'operator') refuseSelfGrant(caller, record, body.capabilities)
      const next = { ...principalView(kind, record), capabilities: body.capabilities }
      const rehearsal = await previewOf(context, caller, [
        { principal: record, capabilities: body.capabilities },
      ])
      return { value: { ...next, rehearsal } }
    },
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable', ...operatorRefusals(kind)],
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
          const isOperator = type === 'operator'
          if (isOperator) refuseSelfGrant(caller, record, body.capabilities)
          return {
            action,
            next,
            detail: { previous },
            assertions: isOperator ? await assertOwnerRemains(context, caller.at, record, next) : [],
            statements: [
              setCapabilities(context.database, { type, id, revision, ...next, ...changeAuthor(caller) }),
            ],
          }
        },
      )
      return principalResult(kind, await principalOf(context, kind, id))
    },
  })
