import { z } from 'zod'
import { stopDetail } from '../../../db/stops/stop.ts'
import {
  deleteStop,
  findStop,
  insertStop,
  listStops,
  MAX_STOPS,
  newStopId,
  type StopRecord,
} from '../../../db/stops/store.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { conflict, notFound, unprocessableBody } from '../../../plugins/refusal.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminContext } from '../operation/context.ts'
import { emptyOperation, operation, readOperation } from '../operation/operation.ts'
import { author, idParams, instant } from '../operation/shapes.ts'
import { recordedScope, stopScope } from '../operation/stop-scope.ts'

/** The longest time after which a stop ends by itself. */
export const MAX_STOP_MS = 7 * 24 * 60 * 60_000
export const MAX_STOP_REASON = 256

/** The reason for beginning or ending a stop: one line. */
const reason = z
  .string()
  .trim()
  .min(1, 'must say why')
  .max(MAX_STOP_REASON, `must be at most ${MAX_STOP_REASON} characters`)
  .regex(/^[^\p{Cc}]*$/u, 'must be one line, without control characters')

export const stopShape = z
  .strictObject({
    stop_id: z.string(),
    scope: stopScope,
    reason: z.string(),
    begun_at: instant,
    begun_by: author,
    until: instant.nullable(),
  })
  .meta({ id: 'Stop' })

export type StopView = z.output<typeof stopShape>

const viewOf = ({ id, ...stop }: StopRecord): StopView => ({ stop_id: id, ...stop })

export const listOpenStops = readOperation({
  name: 'listStops',
  summary: 'Lists the stops that have not ended.',
  takes: {},
  output: z.strictObject({ stops: z.array(stopShape) }),
  run: async ({ database }) => ({ value: { stops: (await listStops(database)).map(viewOf) } }),
})

/** POST /v1/admin/stops: no call of its scope is allowed after it, on any gateway. */
export const beginStop = operation({
  name: 'beginStop',
  demands: 'admin.stop',
  action: 'stop.begun',
  harmless: true,
  summary: 'Stops calls at once: the next ones are refused, and those under way are cut.',
  takes: { body: z.strictObject({ scope: stopScope, reason, until: instant.exactOptional() }) },
  output: stopShape,
  status: 201,
  reasons: ['not_found', 'conflict', 'audit_unavailable'],
  resembles: (_context, { body }) => [{ stop: body.scope }],
  example: { scope: 'all', reason: 'a key has leaked' },
  run: (context, { body }, caller) =>
    // One after the other: each counts those before it.
    context.oneAtATime.run('stops', async () => {
      const { database } = context
      const until = body.until === undefined ? null : Date.parse(body.until)
      const fault = until === null ? null : untilFault(until - caller.at)
      if (fault) throw unprocessableBody([{ field: 'until', message: fault }])
      if ((await listStops(database)).length >= MAX_STOPS)
        throw conflict(`There are ${MAX_STOPS} stops already. End one of them first.`)
      const recorded = await recordedScope(context, body.scope)
      if ('problem' in recorded) throw notFound(recorded.problem)
      const stop: StopRecord = {
        id: newStopId(),
        scope: recorded.scope,
        reason: body.reason,
        begun_at: timestamp(caller.at),
        begun_by: caller.actor.id,
        until: until === null ? null : timestamp(until),
      }
      await commitChange(context, caller, {
        action: 'stop.begun',
        detail: { ...stopDetail(stop), ...(stop.until !== null && { until: stop.until }) },
        statements: insertStop(database, stop),
      })
      return { value: viewOf(stop) }
    }),
})

function untilFault(ms: number): string | null {
  if (ms <= 0) return 'must be in the future'
  return ms > MAX_STOP_MS ? 'must be within the next 7 days' : null
}

async function stopOf({ database }: AdminContext, id: string): Promise<StopRecord> {
  const found = await findStop(database, id)
  if (!found) throw notFound(`There is no open stop ${id}. GET /v1/admin/stops lists them.`)
  return found
}

/** POST /v1/admin/stops/{id}/end: starting again takes more than stopping. */
export const endStop = emptyOperation({
  name: 'endStop',
  demands: 'admin.grant',
  action: 'stop.ended',
  twoPersonKind: 'stop_end',
  summary: 'Ends the stop: its calls are judged as before.',
  takes: { params: idParams, body: z.strictObject({ reason }) },
  object: async (context, { params: { id } }) => ({ ...(await stopOf(context, id)), revision: 1 }),
  reasons: ['not_found', 'precondition_failed', 'audit_unavailable'],
  example: { reason: 'the key is replaced' },
  run: async (context, { params: { id }, body }, caller) => {
    const stop = await stopOf(context, id)
    await commitChange(context, caller, {
      action: 'stop.ended',
      detail: { ...stopDetail(stop), why: 'operator', ended: body.reason },
      statements: deleteStop(context.database, id),
    })
  },
})
