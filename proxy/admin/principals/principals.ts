import { z } from 'zod'
import { deleteApprovals } from '../../../db/mcp/approvals.ts'
import { deletePrincipalBindings } from '../../../db/mcp/bindings.ts'
import { endSessionsOf } from '../../../db/operators/sessions.ts'
import { deleteApiKeys } from '../../../db/principals/api-keys.ts'
import { authorityDetail } from '../../../db/principals/authority.ts'
import { deletePins } from '../../../db/principals/pins.ts'
import { deleteSubjectKeys, newPseudonym } from '../../../db/principals/subject-keys.ts'
import { distrustAll } from '../../../db/principals/trusted-cas.ts'
import {
  blankPrincipal,
  deleteUser,
  insertPrincipal,
  setActive,
  setSpiffeBundle,
} from '../../../db/principals/write.ts'
import { deleteStates } from '../../../db/provider-states.ts'
import { namesUnchanged } from '../../../db/settings.ts'
import { endingOf } from '../../mcp/accounts/ending.ts'
import { changeAuthor, commitChange } from '../operation/change.ts'
import type { RehearsalChange } from '../operation/changes.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import {
  capabilityToEnroll,
  capabilityToGrant,
  type PrincipalKind,
  printPrincipalId,
} from '../operation/kinds.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import {
  adminCapabilities,
  callerCapabilities,
  displayName,
  idParams,
  shortName,
} from '../operation/shapes.ts'
import { assertOwnerRemains, operatorRefusals } from '../operators/owners.ts'
import { changeAuthority, newSubjectKey } from './authority.ts'
import { endAllGrantsOf } from './grants.ts'
import { PRINCIPAL_SHAPES, principalByParams, principalOf, principalResult } from './view.ts'

const NOTHING = { capabilities: [], is_active: false, thumbprints: [], dpop_jkts: [] }

/**
 * POST …/{id}/erase: takes a principal out of service for good and destroys its personal data, with one row
 * (docs/ledger.md#erasure). Of a user nothing is left but its pseudonym; others keep their name and row. Does
 * NOT reach log files, back-ups and earlier exports.
 */
export const erase = (kind: PrincipalKind) =>
  emptyOperation({
    name: `erase${kind.noun}`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.erased`,
    object: principalByParams(kind),
    summary: `Takes the ${kind.type} out of service for good, and destroys its personal data and keys.`,
    takes: { params: idParams },
    gives: (_context, { params: { id } }) => ({ principal: { principal_id: id, is_active: false } }),
    resembles: (context, { params: { id } }) => withoutAccess(context, kind, id),
    conditional: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      const { database, subjectKeys } = context
      const { type } = kind
      const erased = await changeAuthority(context, kind, caller, { id, ifMatch }, async (record) => {
        const { revision } = record
        const grants = type === 'user' ? await endAllGrantsOf(context, record, 'erased') : NO_GRANTS
        const accounts = await endingOf(context, { principal: { type, id } }, 'erased', caller.at)
        return {
          action: `${type}.erased`,
          next: NOTHING,
          detail: {},
          statements: [
            type === 'user'
              ? deleteUser(database, id, revision)
              : blankPrincipal(database, { type, id, revision, ...changeAuthor(caller) }),
            ...(type === 'agent' ? [setSpiffeBundle(database, id, null), distrustAll(database, id)] : []),
            deletePins(database, type, id),
            deleteApiKeys(database, { type, id }),
            deletePrincipalBindings(database, type, id),
            deleteApprovals(database, type, id),
            deleteStates(database, type, id),
            deleteSubjectKeys(database, type, id),
            ...grants.statements,
            ...accounts.statements,
          ],
          further: [...grants.notes, ...accounts.notes],
        }
      })
      subjectKeys.forget(erased.principal_ref)
    },
  })

interface NewPrincipalBody {
  readonly name: string
  readonly display_name?: string | null | undefined
  readonly capabilities: readonly string[]
}

/** The name stands under the field that the kind has for it. */
const newPrincipal = (kind: PrincipalKind) => {
  const { nameField } = kind
  return (
    z
      .strictObject({
        [nameField]: shortName,
        display_name: displayName.nullish(),
        capabilities: capabilitySetSchema(kind).default([]),
      })
      // zod takes a computed key for any key; these are those of the schema above.
      .transform(({ [nameField]: name, ...rest }) => ({ name, ...rest }) as NewPrincipalBody)
  )
}

/** None for an operator, whose calls are of administration. */
export async function changeOf(
  context: AdminContext,
  kind: PrincipalKind,
  id: string,
  change: (principal: string) => RehearsalChange,
): Promise<readonly RehearsalChange[]> {
  await principalOf(context, kind, id)
  return kind.type === 'operator' ? [] : [change(id)]
}

/** The change that takes all access from a principal; none if it has none, or is an operator. */
export async function withoutAccess(
  context: AdminContext,
  kind: PrincipalKind,
  id: string,
): Promise<readonly RehearsalChange[]> {
  const { is_active: active } = await principalOf(context, kind, id)
  return active && kind.type !== 'operator' ? [{ principal: id, is_active: false }] : []
}

export const capabilitySetSchema = ({ type }: PrincipalKind) =>
  type === 'operator' ? adminCapabilities : callerCapabilities

/** POST /v1/admin/{users,workloads,operators}: enrolls one without a certificate (spec §4.2). */
export const createPrincipal = (kind: PrincipalKind) =>
  operation({
    name: `create${kind.noun}`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.created`,
    alsoDemands: (_context, { body }) => (body.capabilities.length > 0 ? [capabilityToGrant(kind)] : []),
    summary: `Enrolls a ${kind.type} without a certificate. It gets one with a certificate request.`,
    takes: { body: newPrincipal(kind) },
    output: PRINCIPAL_SHAPES[kind.type],
    status: 201,
    revised: true,
    ...(kind.type !== 'operator' && {
      gives: ({ organisation }: AdminContext, { body }: { readonly body: NewPrincipalBody }) => ({
        principal: {
          principal_id: printPrincipalId(kind, organisation, body.name),
          capabilities: body.capabilities,
        },
      }),
    }),
    reasons: ['conflict', 'audit_unavailable'],
    example: {
      [kind.nameField]: 'ada',
      capabilities: kind.type === 'operator' ? ['admin.read'] : ['llm.chat'],
    },
    run: async (context, { body: { name, display_name: displayName, capabilities: held } }, caller) => {
      const { type } = kind
      const id = printPrincipalId(kind, context.organisation, name)
      const ref = type === 'user' ? newPseudonym() : id
      const principal = {
        type,
        id,
        ref,
        name,
        displayName: displayName ?? null,
        capabilities: held,
        enrollmentMethod: 'csr',
        spiffeId: null,
        dpopJkt: null,
        federated: false,
        ...changeAuthor(caller),
      } as const
      const state = { capabilities: held, is_active: true, thumbprints: [], dpop_jkts: [] }
      await commitChange(context, caller, {
        action: `${type}.created`,
        detail: authorityDetail(
          { principal_ref: ref, enrollment_method: 'csr', spiffe_id: null },
          FIRST_REVISION,
          state,
        ),
        assertions: [namesUnchanged(context.database, context)],
        statements: [insertPrincipal(context.database, principal), newSubjectKey(context, principal)],
      })
      return principalResult(kind, await principalOf(context, kind, id))
    },
  })

const FIRST_REVISION = 1

export const getPrincipal = (kind: PrincipalKind) =>
  readOperation({
    name: `get${kind.noun}`,
    summary: `Shows the ${kind.type} with that id.`,
    takes: { params: idParams },
    output: PRINCIPAL_SHAPES[kind.type],
    revised: true,
    reasons: ['not_found'],
    run: async (context, { params: { id } }) => principalResult(kind, await principalOf(context, kind, id)),
  })

export const deactivate = (kind: PrincipalKind) =>
  emptyOperation({
    name: `deactivate${kind.noun}`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.deactivated`,
    object: principalByParams(kind),
    summary: `Takes the ${kind.type} out of service at once. It stays on record.`,
    takes: { params: idParams },
    conditional: true,
    rehearses: (context, { params: { id } }) =>
      changeOf(context, kind, id, (principal) => ({ principal, is_active: false })),
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable', ...operatorRefusals(kind)],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      await setActivity(context, kind, caller, id, ifMatch, false)
    },
  })

export const reactivate = (kind: PrincipalKind) =>
  operation({
    name: `reactivate${kind.noun}`,
    demands: capabilityToEnroll(kind),
    action: `${kind.type}.reactivated`,
    object: principalByParams(kind),
    summary: `Takes the ${kind.type} back into service.`,
    takes: { params: idParams },
    gives: (_context, { params: { id } }) => ({ principal: { principal_id: id, is_active: true } }),
    output: PRINCIPAL_SHAPES[kind.type],
    conditional: true,
    revised: true,
    reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
    run: async (context, { params: { id }, ifMatch }, caller) => {
      await setActivity(context, kind, caller, id, ifMatch, true)
      return principalResult(kind, await principalOf(context, kind, id))
    },
  })

const NO_GRANTS = { statements: [], notes: [] }

async function setActivity(
  context: AdminContext,
  kind: PrincipalKind,
  caller: AdminCaller,
  id: string,
  ifMatch: string | undefined,
  active: boolean,
): Promise<void> {
  const { type } = kind
  const { database } = context
  await changeAuthority(context, kind, caller, { id, ifMatch }, async (record) => {
    if (record.is_active === active) return null
    const next = { is_active: active }
    const ends = type === 'user' && !active
    const grants = ends ? await endAllGrantsOf(context, record, 'deactivated') : NO_GRANTS
    const accounts = active
      ? NO_GRANTS
      : await endingOf(context, { principal: { type, id } }, 'deactivated', caller.at)
    return {
      action: `${type}.${active ? 'reactivated' : 'deactivated'}`,
      next,
      detail: {},
      assertions: await assertOwnerRemains(context, caller.at, record, next),
      statements: [
        setActive(database, { type, id, active, revision: record.revision, ...changeAuthor(caller) }),
        // An erased principal has none.
        newSubjectKey(context, { type, id, ref: record.principal_ref }),
        // An operator who is taken back finds no browser signed in.
        ...(type === 'operator' ? [endSessionsOf(database, id)] : []),
        ...grants.statements,
        ...accounts.statements,
      ],
      further: [...grants.notes, ...accounts.notes],
    }
  })
}
