import { z } from 'zod'
import {
  type CapabilitySet,
  deleteCapabilitySet,
  insertCapabilitySet,
  listCapabilitySets,
  updateCapabilitySet,
  walkAttached,
} from '../../../db/principals/sets.ts'
import { conflict, notFound, Refusal } from '../../../plugins/refusal.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { changeAuthor, commitChange } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { checkIfMatch, emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { author, callerCapabilities, capabilityToken, instant, labelWord } from '../operation/shapes.ts'
import { hasDrifted } from '../principals/list.ts'

const MAX_SETS = 256

const params = z.object({ name: labelWord })

const members = {
  name: z.string(),
  capabilities: z.array(capabilityToken),
  created_at: instant,
  updated_at: instant,
  created_by: author,
  changed_by: author,
}

const setShape = z.strictObject(members).meta({ id: 'CapabilitySet' })

const countsByType = z.record(z.string(), z.int())

const countedSet = z.strictObject({
  ...members,
  principals: countsByType.meta({ description: 'How many were given it last, by type.' }),
  drifted: countsByType.meta({ description: 'How many of those hold something else now.' }),
})

const setView = ({ revision: _, ...set }: CapabilitySet): z.output<typeof setShape> => ({
  ...set,
  capabilities: [...set.capabilities],
})

/** Finds the set of a name. Refuses with `not_found`. */
export async function capabilitySetOf({ database }: AdminContext, name: string): Promise<CapabilitySet> {
  const found = (await listCapabilitySets(database)).find((set) => set.name === name)
  if (!found) throw notFound(`There is no set with the name ${name}. GET /v1/admin/sets lists them.`)
  return found
}

export const listSets = readOperation({
  name: 'listCapabilitySets',
  summary: 'Lists the named sets of capabilities, with how many principals were given each.',
  takes: {},
  output: z.strictObject({ sets: z.array(countedSet) }),
  run: async ({ database }) => {
    const sets = await listCapabilitySets(database)
    const counted = new Map(sets.map((set) => [set.name, { ...setView(set), principals: {}, drifted: {} }]))
    await walkAttached(database, eventLoopTurn, ({ type, set, capabilities }) => {
      const one: z.output<typeof countedSet> | undefined = counted.get(set ?? '')
      if (!one) return
      one.principals[type] = (one.principals[type] ?? 0) + 1
      if (hasDrifted(capabilities, one.capabilities)) one.drifted[type] = (one.drifted[type] ?? 0) + 1
    })
    return { value: { sets: [...counted.values()] } }
  },
})

export const getSet = readOperation({
  name: 'getCapabilitySet',
  summary: 'Shows the named set.',
  takes: { params },
  output: setShape,
  revised: true,
  reasons: ['not_found'],
  run: async (context, { params: { name } }) => {
    const set = await capabilitySetOf(context, name)
    return { value: setView(set), revision: set.revision }
  },
})

/**
 * PUT /v1/admin/sets/{name}: names a set, or replaces it. Nobody holds more or less by that: who was given it
 * before has drifted from it then.
 */
export const putSet = operation({
  name: 'putCapabilitySet',
  demands: 'admin.grant',
  action: 'capability_set.stored',
  harmless: true,
  summary: 'Names a set of capabilities, or replaces the one of that name. No principal is changed.',
  takes: { params, body: z.strictObject({ capabilities: callerCapabilities }) },
  output: setShape,
  conditional: true,
  revised: true,
  reasons: ['conflict', 'precondition_failed', 'audit_unavailable'],
  example: { capabilities: ['llm.chat', 'mcp.tools.list'] },
  run: (context, { params: { name }, body: { capabilities }, ifMatch }, caller) =>
    // One after the other: each counts those before it.
    context.oneAtATime.run('capability_sets', async () => {
      const { database } = context
      const sets = await listCapabilitySets(database)
      const found = sets.find((set) => set.name === name)
      if (found) checkIfMatch(ifMatch, found)
      else if (ifMatch !== undefined) throw new Refusal('precondition_failed')
      if (!found && sets.length >= MAX_SETS)
        throw conflict(`There are ${MAX_SETS} sets already. Delete one first.`)
      const change = { name, capabilities, ...changeAuthor(caller) }
      await commitChange(context, caller, {
        action: 'capability_set.stored',
        detail: { set: name, capabilities, previous: found?.capabilities ?? null },
        statements: [
          found
            ? updateCapabilitySet(database, { ...change, revision: found.revision })
            : insertCapabilitySet(database, change),
        ],
      })
      const set = await capabilitySetOf(context, name)
      return { value: setView(set), revision: set.revision }
    }),
})

export const deleteSet = emptyOperation({
  name: 'deleteCapabilitySet',
  demands: 'admin.grant',
  action: 'capability_set.deleted',
  harmless: true,
  summary: 'Deletes the named set. Who was given it keeps what it holds.',
  takes: { params },
  conditional: true,
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  run: async (context, { params: { name }, ifMatch }, caller) => {
    const found = await capabilitySetOf(context, name)
    checkIfMatch(ifMatch, found)
    await commitChange(context, caller, {
      action: 'capability_set.deleted',
      detail: { set: name, previous: found.capabilities },
      statements: deleteCapabilitySet(context.database, {
        name,
        revision: found.revision,
        ...changeAuthor(caller),
      }),
    })
  },
})
