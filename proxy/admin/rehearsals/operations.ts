import { z } from 'zod'
import type { WalkProgress } from '../../../db/ledger/rehearsal/rehearse.ts'
import { findRehearsal } from '../../../db/rehearsal/store.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { type Rehearsal, recordRehearsal } from '../conditions/rehearsed.ts'
import { resolveChanges } from '../conditions/resolve.ts'
import { DEFAULT_WINDOW_MS, instantInput, rehearsalShape, runRehearsal, windowOf } from '../conditions/run.ts'
import { rehearsalChanges } from '../operation/changes.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { ndjsonWithProgress } from '../operation/in-lines.ts'
import { type InputSchemas, operation, readOperation } from '../operation/operation.ts'
import { idParams } from '../operation/shapes.ts'
import { bulkChanges, bulkRehearsal, demandedForBulk } from '../sets/bulk.ts'

const rehearsalBody = z.strictObject({
  changes: rehearsalChanges,
  bulk: bulkRehearsal.exactOptional(),
  since: instantInput.exactOptional().meta({ description: 'Inclusive. Default: 30 days before `until`.' }),
  until: instantInput.exactOptional().meta({ description: 'Exclusive. Default: now.' }),
})

type RehearsalRequest = z.output<typeof rehearsalBody>

const rehearsalInput = { body: rehearsalBody } satisfies InputSchemas

const rehearsalDeclaration = {
  demands: 'admin.grant',
  action: 'rehearsal.done',
  // It grants nothing: an operator who may rehearse needs no second one.
  harmless: true,
  alsoDemands: (_context: AdminContext, { body: { bulk } }: { readonly body: RehearsalRequest }) =>
    bulk ? demandedForBulk(bulk) : [],
  takes: rehearsalInput,
  reasons: ['overloaded', 'audit_unavailable'],
  example: { changes: [] },
} as const

/**
 * POST /v1/admin/rehearsals: judges a window's decisions again, with changes laid over them
 * (docs/rehearsal.md). One row records the result.
 */
export const rehearse = operation({
  ...rehearsalDeclaration,
  name: 'rehearse',
  summary: 'Says what changes of authority would have done to the calls of a window.',
  output: rehearsalShape,
  run: async (context, { body }, caller) => ({ value: await rehearseChanges(context, body, caller) }),
})

/** The same, with its progress: lines `{"progress": {"rows", "of"}}`, and then the rehearsal. */
export const rehearseWithProgress = operation({
  ...rehearsalDeclaration,
  name: 'rehearseWithProgress',
  summary: 'The same, after lines about the progress.',
  media: 'application/x-ndjson',
  output: z.unknown(),
  run: async (context, { body }, caller) => ({
    value: await ndjsonWithProgress((onProgress) => rehearseChanges(context, body, caller, onProgress)),
  }),
})

async function rehearseChanges(
  context: AdminContext,
  body: RehearsalRequest,
  caller: AdminCaller,
  onProgress?: (progress: WalkProgress) => void,
): Promise<Rehearsal> {
  const { since, until = caller.at } = body
  const window = windowOf(until, since)
  const found = body.bulk ? await bulkChanges(context, body.bulk, caller.at) : []
  const resolved = await resolveChanges(context, [...body.changes, ...found])
  return recordRehearsal(
    context,
    caller,
    resolved,
    await runRehearsal(context, caller, resolved, window, { onProgress }),
  )
}

export const getRehearsal = readOperation({
  name: 'getRehearsal',
  summary: 'Shows a rehearsal again, for 30 days.',
  takes: { params: idParams },
  output: rehearsalShape,
  reasons: ['not_found'],
  run: async ({ database }, { params: { id } }, { at }) => {
    const found = await findRehearsal(database, id)
    if (!found || at - Date.parse(found.created_at) > DEFAULT_WINDOW_MS)
      throw notFound('There is no rehearsal with this id. Rehearse the change again.')
    // Proven by record, which alone stores them.
    return { value: JSON.parse(found.result) as Rehearsal }
  },
})
