import { z } from 'zod'
import { authorityDetail, authorityState } from '../../../db/principals/authority.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { CapabilitySet } from '../../../db/principals/sets.ts'
import { setCapabilities } from '../../../db/principals/write.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { previewOf, previewShape } from '../conditions/run.ts'
import { changeAuthor, commitChanges, isOvertaken } from '../operation/change.ts'
import type { RehearsalChange } from '../operation/changes.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { AGENT, type PrincipalKind, USER, WORKLOAD } from '../operation/kinds.ts'
import { etagOf, operation } from '../operation/operation.ts'
import { callerCapabilities, capabilityToken, dryRun, labelWord } from '../operation/shapes.ts'
import {
  capabilitiesForSearch,
  findAllPrincipals,
  hasDrifted,
  MAX_FOUND,
  searchQuery,
} from '../principals/list.ts'
import { capabilitySetOf } from './sets.ts'

const MAX_CAPABILITIES = 64
/** The principals that are read, judged or written down between two turns of the loop. */
const AT_ONCE = 25
const MAX_NAMED = 20

const setChangeMembers = {
  q: searchQuery
    .refine(({ text }) => text.trim() !== '', 'must look for some')
    .meta({ type: 'string', minLength: 1 }),
  add: callerCapabilities.exactOptional(),
  remove: callerCapabilities.exactOptional(),
  replace: callerCapabilities.exactOptional().meta({ description: 'The whole new set; ends a named one.' }),
  set: labelWord.exactOptional().meta({ description: 'The named set that each is given.' }),
}

const RULE = 'must have one of add and remove, replace, set'

const isOneForm = ({ add, remove, replace, set }: Readonly<Record<string, unknown>>): boolean =>
  [add ?? remove, replace, set].filter((form) => form !== undefined).length === 1

const etagMap = z.record(z.string(), z.string())

const bulkBody = z
  .strictObject({
    ...setChangeMembers,
    etags: etagMap
      .refine((etags) => Object.keys(etags).length <= MAX_FOUND + 1, 'are too many')
      .exactOptional()
      .meta({ description: 'What the dry run answered: the change is of these, as they were.' }),
  })
  .refine(isOneForm, RULE)

type BulkBody = z.output<typeof bulkBody>

const CALLER_KINDS = { agent: AGENT, user: USER, workload: WORKLOAD } as const

/** The same as a part of a rehearsal. */
export const bulkRehearsal = z
  .strictObject({ type: z.enum(['agent', 'user', 'workload']), ...setChangeMembers })
  .refine(isOneForm, RULE)
  .meta({ description: 'A change of all that a search finds, in addition to `changes`.' })

export const demandedForBulk = ({ q }: Pick<BulkBody, 'q'>) => capabilitiesForSearch(q)

const bulkShape = z.strictObject({
  found: z.int(),
  changed: z.int(),
  principals: z
    .array(
      z.strictObject({
        principal_id: z.string(),
        previous: z.array(capabilityToken),
        capabilities: z.array(capabilityToken),
      }),
    )
    .meta({ description: 'Those that are changed, by id.' }),
  etags: etagMap.meta({ description: 'The state of all that were found, and of the named set, before it.' }),
  rehearsal: previewShape.exactOptional(),
})

interface PrincipalSetChange {
  readonly principal: PrincipalRecord
  readonly capabilities: readonly string[]
}

interface BulkPlan {
  readonly etags: Readonly<Record<string, string>>
  /** The principals that it changes, by id. */
  readonly changes: readonly PrincipalSetChange[]
  /** The named set of each afterwards; undefined: the one that it has. */
  readonly given: string | null | undefined
}

async function planFor(
  context: AdminContext,
  { add = [], remove = [], replace, set }: Omit<BulkBody, 'q' | 'etags'>,
  found: readonly PrincipalRecord[],
): Promise<BulkPlan> {
  const template: CapabilitySet | null = set === undefined ? null : await capabilitySetOf(context, set)
  const whole = template?.capabilities ?? replace
  const given = template ? template.name : replace ? null : undefined
  const changes: PrincipalSetChange[] = []
  for (const some of portionsOf(found, AT_ONCE)) {
    for (const principal of some) {
      const { capabilities: held, capability_set: last } = principal
      const capabilities = whole ?? [...new Set([...held, ...add])].filter((one) => !remove.includes(one))
      if (hasDrifted(held, capabilities) || (given !== undefined && last !== given))
        changes.push({ principal, capabilities })
    }
    await eventLoopTurn()
  }
  changes.sort((one, other) => (one.principal.principal_id < other.principal.principal_id ? -1 : 1))
  const tooMany = changes.filter(({ capabilities }) => capabilities.length > MAX_CAPABILITIES)
  if (tooMany.length > 0) {
    const names = namesOf(tooMany.map(({ principal }) => principal.principal_id))
    const message = `would give more than ${MAX_CAPABILITIES} capabilities to ${names}`
    throw unprocessableBody([{ field: 'add', message }])
  }
  const states = found.map((principal) => [principal.principal_id, etagOf(principal)])
  // No id of a principal is like it. Its revision would also be that of another set of this name, made later.
  if (template) states.push([`set:${template.name}`, template.capabilities.join(' ')])
  return { etags: Object.fromEntries(states), changes, given }
}

const namesOf = (ids: readonly string[]): string =>
  ids.length <= MAX_NAMED
    ? ids.join(', ')
    : `${ids.slice(0, MAX_NAMED).join(', ')} and ${ids.length - MAX_NAMED} more`

/** Says the changes of a part of a rehearsal, one by one. */
export async function bulkChanges(
  context: AdminContext,
  { type, q, ...change }: z.output<typeof bulkRehearsal>,
  at: number,
): Promise<readonly RehearsalChange[]> {
  const found = await findAllPrincipals(context, CALLER_KINDS[type], q, at)
  return (await planFor(context, change, found)).changes.map(rehearsalChangeOf)
}

const rehearsalChangeOf = ({ principal, capabilities }: PrincipalSetChange): RehearsalChange => ({
  principal: principal.principal_id,
  capabilities,
})

/** Finds the principals that a change names: it is judged by what it was shown to be of. */
async function shownPrincipals(
  { database }: AdminContext,
  { type }: PrincipalKind,
  etags: Readonly<Record<string, string>>,
): Promise<readonly PrincipalRecord[]> {
  const records: PrincipalRecord[] = []
  for (const [index, id] of Object.keys(etags).entries()) {
    if (index % AT_ONCE === 0) await eventLoopTurn()
    const record = await findPrincipal(database, type, id)
    if (record) records.push(record)
  }
  return records
}

/** Refuses with `precondition_failed`, and names them, if others are found or they are not as they were shown. */
function refuseChanged(now: BulkPlan['etags'], shown: BulkPlan['etags']): void {
  const ids = new Set([...Object.keys(now), ...Object.keys(shown)])
  const changed = [...ids].filter((id) => now[id] !== shown[id])
  if (changed.length === 0) return
  throw new Refusal('precondition_failed', {
    message: `Nothing was changed: since this was shown, others have changed ${namesOf(changed)}. Ask for it again.`,
    detail: { changed: changed.slice(0, MAX_NAMED) },
  })
}

/**
 * POST /v1/admin/{agents,users,workloads}/capabilities: changes the sets of all that a search finds, in one
 * transaction with a row for each. A dry run says which those are, and the change names them.
 */
export const changeFound = (kind: PrincipalKind) =>
  operation({
    name: `changeCapabilitiesOf${kind.noun}s`,
    demands: 'admin.grant',
    action: `${kind.type}.capabilities_patched`,
    alsoDemands: (_context, { body }) => demandedForBulk(body),
    summary: `Changes the capabilities of all ${kind.plural} that a search finds, at most ${MAX_FOUND}, or of none.`,
    takes: { query: z.object({ dry_run: dryRun }), body: bulkBody },
    output: bulkShape,
    rehearses: async (context, { body: { q: _, etags, ...change } }) =>
      etags === undefined
        ? []
        : (await planFor(context, change, await shownPrincipals(context, kind, etags))).changes.map(
            rehearsalChangeOf,
          ),
    preview: async (context, { body: { q, etags: _, ...change } }, caller) => {
      const found = await findAllPrincipals(context, kind, q, caller.at)
      const plan = await planFor(context, change, found)
      return {
        value: { ...bulkView(plan, found), rehearsal: await previewOf(context, caller, plan.changes) },
      }
    },
    reasons: ['not_found', 'precondition_failed', 'overloaded', 'audit_unavailable'],
    example: { q: 'label:team=red', add: ['files.read'] },
    run: async (context, { body: { q, etags: shown, ...change } }, caller) => {
      if (shown === undefined) {
        const message = 'must be what ?dry_run=true answered'
        throw unprocessableBody([{ field: 'etags', message }])
      }
      const found = await findAllPrincipals(context, kind, q, caller.at)
      const plan = await planFor(context, change, found)
      refuseChanged(plan.etags, shown)
      try {
        if (plan.changes.length > 0) await changeAll(context, kind, caller, plan)
      } catch (error) {
        if (isOvertaken(error)) {
          const now = await findAllPrincipals(context, kind, q, caller.at)
          refuseChanged((await planFor(context, change, now)).etags, shown)
        }
        throw error
      }
      return { value: bulkView(plan, found) }
    },
  })

async function changeAll(
  context: AdminContext,
  { type }: PrincipalKind,
  caller: AdminCaller,
  { changes, given }: BulkPlan,
): Promise<void> {
  const { database } = context
  const [notes, statements] = [[], []] as [
    Parameters<typeof commitChanges>[2]['notes'][number][],
    ReturnType<typeof setCapabilities>[],
  ]
  for (const [index, { principal, capabilities }] of changes.entries()) {
    if (index % AT_ONCE === 0) await eventLoopTurn()
    const { principal_id: id, revision, authority_revision: before } = principal
    const state = await authorityState(database, principal, caller.at)
    const detail = authorityDetail(principal, before + 1, { ...state, capabilities })
    notes.push({
      action: `${type}.capabilities_patched`,
      detail: { ...detail, previous: principal.capabilities, ...(given && { set: given }) },
    })
    statements.push(
      setCapabilities(database, { type, id, revision, capabilities, set: given, ...changeAuthor(caller) }),
    )
  }
  await commitChanges(context, caller, { notes, statements })
}

const bulkView = ({ changes, etags }: BulkPlan, found: readonly PrincipalRecord[]) => ({
  found: found.length,
  changed: changes.length,
  principals: changes.map(({ principal, capabilities }) => ({
    principal_id: principal.principal_id,
    previous: principal.capabilities,
    capabilities,
  })),
  etags,
})
