import { z } from 'zod'
import { type CallLimit, type LimitTerms, limitState } from '../../../db/limits/limit.ts'
import {
  deleteLimit,
  findLimit,
  insertLimit,
  type LimitRecord,
  listLimits,
  MAX_LIMITS,
  newLimitId,
  updateLimit,
} from '../../../db/limits/store.ts'
import { conflict, notFound } from '../../../plugins/refusal.ts'
import { resolveChanges } from '../conditions/resolve.ts'
import { previewShape, runRehearsal, windowOf } from '../conditions/run.ts'
import { changeAuthor, commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import {
  changeableMembers,
  changedLimitBody,
  changedTerms,
  fixedMembers,
  newLimitBody,
  newTerms,
  overrideBody,
  overrideOf,
  termsOf,
} from '../operation/limit-terms.ts'
import { checkIfMatch, emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { author, dryRun, idParams, instant } from '../operation/shapes.ts'

const { name, amount, burst, strict, on, show } = changeableMembers

const overrideShape = z.strictObject({ amount, until: instant, reason: z.string() })

export const limitShape = z
  .strictObject({
    ...{ limit_id: z.string(), name, amount, strict, on, show, ...fixedMembers },
    per: fixedMembers.per.exactOptional(),
    burst: burst.exactOptional(),
    override: overrideShape.nullable(),
    ...{ created_at: instant, updated_at: instant, created_by: author, changed_by: author },
  })
  .meta({ id: 'Limit' })

/** The same, with the preview of its change, if that was asked for. */
const previewedLimit = limitShape.extend({ rehearsal: previewShape.exactOptional() })

/** The terms of one that is not made yet, and what it would have done. */
const previewOfNew = limitShape
  .omit({ limit_id: true, override: true, created_at: true, updated_at: true, created_by: true })
  .omit({ changed_by: true })
  .extend({ rehearsal: previewShape })
  .meta({ id: 'NewLimitPreview' })

export type LimitView = z.output<typeof limitShape>

export const limitView = ({ id, revision: _, ...limit }: LimitRecord): LimitView => ({
  limit_id: id,
  ...limit,
  ...termsView(limit),
})

function termsView<Terms extends LimitTerms>(terms: Terms) {
  const { types } = terms.for
  // Operators make no calls: a limit names none.
  const callers = types?.filter((type) => type !== 'operator')
  return { ...terms, for: { ...patternsOf(terms.for), ...(callers && { types: callers }) } }
}

const patternsOf = ({ principals, models, tools, holding }: CallLimit['for']) => ({
  ...(principals && { principals: [...principals] }),
  ...(holding !== undefined && { holding }),
  ...(models && { models: [...models] }),
  ...(tools && { tools: [...tools] }),
})

export async function limitOf({ database }: AdminContext, id: string): Promise<LimitRecord> {
  const found = await findLimit(database, id)
  if (!found) throw notFound(`There is no limit ${id}. GET /v1/admin/limits lists them.`)
  return found
}

export const listAllLimits = readOperation({
  name: 'listLimits',
  summary: 'Lists the limits of calls.',
  takes: {},
  output: z.strictObject({ limits: z.array(limitShape) }),
  run: async ({ database }) => ({ value: { limits: (await listLimits(database)).map(limitView) } }),
})

export const getLimit = readOperation({
  name: 'getLimit',
  summary: 'Shows the limit.',
  takes: { params: idParams },
  output: limitShape,
  revised: true,
  reasons: ['not_found'],
  run: async (context, { params: { id } }) => {
    const limit = await limitOf(context, id)
    return { value: limitView(limit), revision: limit.revision }
  },
})

/** Refuses with `conflict` a further limit if there are too many, or one has its name. */
async function checkRoom({ database }: AdminContext, named: string): Promise<void> {
  const limits = await listLimits(database)
  if (limits.length >= MAX_LIMITS) throw conflict(`There are ${MAX_LIMITS} limits already. Remove one first.`)
  if (limits.some((limit) => limit.name === named)) throw conflict(`There is a limit ${named} already.`)
}

/** POST /v1/admin/limits: it holds for the next call, on every gateway. */
export const createLimit = operation({
  name: 'createLimit',
  demands: 'admin.grant',
  action: 'limit.created',
  harmless: true,
  summary: 'Limits calls by cost, tokens, calls or calls at once.',
  takes: { query: z.object({ dry_run: dryRun }), body: newLimitBody },
  output: z.union([limitShape, previewOfNew]),
  status: 201,
  revised: true,
  reasons: ['conflict', 'audit_unavailable'],
  example: {
    name: 'red-month',
    for: { holding: 'team.red' },
    measure: 'cost',
    amount: 25_000_000,
    per: 'month',
  },
  rehearses: (_context, { body }) => [{ limit: body }],
  preview: async (context, { body }, caller) => {
    const { name: named, terms } = newTerms(body)
    await checkRoom(context, named)
    const resolved = await resolveChanges(context, [{ limit: body }])
    const rehearsal = await runRehearsal(context, caller, resolved, windowOf(caller.at))
    return { status: 200, value: { name: named, ...termsView(terms), rehearsal } }
  },
  run: (context, { body }, caller) =>
    // One after the other: each counts those before it.
    context.oneAtATime.run('limits', async () => {
      const { database } = context
      const { name: named, terms } = newTerms(body)
      await checkRoom(context, named)
      const id = newLimitId()
      await commitChange(context, caller, {
        action: 'limit.created',
        detail: { limit: limitState({ ...terms, id, name: named, revision: 1, override: null }) },
        statements: insertLimit(database, { id, name: named, terms, ...changeAuthor(caller) }),
      })
      return answerOf(context, id)
    }),
})

async function answerOf(context: AdminContext, id: string) {
  const limit = await limitOf(context, id)
  return { value: limitView(limit), revision: limit.revision }
}

/** Stores another state of a limit, with its row. */
async function store(
  context: AdminContext,
  caller: AdminCaller,
  found: LimitRecord,
  next: Pick<CallLimit, 'name' | 'override'> & {
    readonly terms: LimitTerms
    readonly action: string
    readonly reason?: string
  },
): Promise<void> {
  const { id, revision } = found
  const { action, name: named, terms, override, reason } = next
  await commitChange(context, caller, {
    action,
    detail: {
      limit: limitState({ ...terms, id, name: named, override, revision: revision + 1 }),
      ...(reason !== undefined && { reason }),
    },
    statements: updateLimit(context.database, {
      ...{ id, revision, name: named, terms, override },
      ...changeAuthor(caller),
    }),
  })
}

export const changeLimit = operation({
  name: 'changeLimit',
  demands: 'admin.grant',
  action: 'limit.changed',
  summary:
    'Changes the name, amount, burst or manner of the limit. For anything else remove it and make another.',
  takes: { params: idParams, query: z.object({ dry_run: dryRun }), body: changedLimitBody },
  output: previewedLimit,
  conditional: true,
  revised: true,
  object: (context, { params: { id } }) => limitOf(context, id),
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  example: { amount: 50_000_000 },
  rehearses: (_context, { params: { id }, body }) => [{ limit: { id, ...body } }],
  preview: async (context, { params: { id }, body, ifMatch }, caller) => {
    const found = await limitOf(context, id)
    checkIfMatch(ifMatch, found)
    const { name: named, terms } = changedTerms(found, body)
    const resolved = await resolveChanges(context, [{ limit: { id, ...body } }])
    const rehearsal = await runRehearsal(context, caller, resolved, windowOf(caller.at))
    return { value: { ...limitView({ ...found, name: named, ...terms }), rehearsal } }
  },
  run: async (context, { params: { id }, body, ifMatch }, caller) => {
    const found = await limitOf(context, id)
    checkIfMatch(ifMatch, found)
    const { override } = found
    await store(context, caller, found, { action: 'limit.changed', ...changedTerms(found, body), override })
    return answerOf(context, id)
  },
})

export const overrideLimit = operation({
  name: 'overrideLimit',
  demands: 'admin.grant',
  action: 'limit.overridden',
  summary: 'Gives the limit another amount until an instant.',
  takes: {
    params: idParams,
    body: overrideBody,
  },
  output: limitShape,
  conditional: true,
  revised: true,
  object: (context, { params: { id } }) => limitOf(context, id),
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  example: { amount: 50_000_000, until: '2026-12-24T00:00:00.000Z', reason: 'the release' },
  rehearses: (_context, { params: { id }, body }) => [{ limit: { id, override: body } }],
  run: async (context, { params: { id }, body, ifMatch }, caller) => {
    const found = await limitOf(context, id)
    checkIfMatch(ifMatch, found)
    const override = overrideOf(body, caller.at)
    const { name: named } = found
    await store(context, caller, found, {
      action: 'limit.overridden',
      name: named,
      terms: termsOf(found),
      override,
    })
    return answerOf(context, id)
  },
})

/** DELETE /v1/admin/limits/{id}/override: the limit's own amount is in force again. */
export const endLimitOverride = operation({
  name: 'endLimitOverride',
  demands: 'admin.grant',
  action: 'limit.overridden',
  summary: 'Ends the override of the limit: its own amount is in force again.',
  takes: { params: idParams },
  output: limitShape,
  conditional: true,
  revised: true,
  object: (context, { params: { id } }) => limitOf(context, id),
  reasons: ['not_found', 'conflict', 'precondition_failed', 'audit_unavailable'],
  rehearses: (_context, { params: { id } }) => [{ limit: { id, override: null } }],
  run: async (context, { params: { id }, ifMatch }, caller) => {
    const found = await limitOf(context, id)
    checkIfMatch(ifMatch, found)
    if (found.override === null) throw conflict(`The limit ${found.name} has no override.`)
    const { name: named } = found
    await store(context, caller, found, {
      ...{ action: 'limit.overridden', name: named, terms: termsOf(found), override: null },
    })
    return answerOf(context, id)
  },
})

export const removeLimit = emptyOperation({
  name: 'removeLimit',
  demands: 'admin.grant',
  action: 'limit.removed',
  summary: 'Removes the limit. What has been counted stays in the rows.',
  takes: { params: idParams },
  conditional: true,
  object: (context, { params: { id } }) => limitOf(context, id),
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  rehearses: (_context, { params: { id } }) => [{ limit: { id, remove: true } }],
  run: async (context, { params: { id }, ifMatch }, caller) => {
    const found = await limitOf(context, id)
    checkIfMatch(ifMatch, found)
    await commitChange(context, caller, {
      action: 'limit.removed',
      detail: { limit: limitState(found) },
      statements: deleteLimit(context.database, found),
    })
  },
})
