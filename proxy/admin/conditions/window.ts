import { z } from 'zod'
import type { DecisionWindow } from '../../../db/ledger/rehearsal/rehearse.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'

/** The window if the caller says none. ms. */
export const DEFAULT_WINDOW_MS = 30 * 86_400_000

const INSTANT_RULE = 'must be an instant in the form of RFC 3339'

/** An instant as callers write it, in ms since the epoch. */
export const instantInput = z.iso
  .datetime({ offset: true, error: INSTANT_RULE })
  .transform((text) => Date.parse(text))
  .refine((at) => at >= 0 && at < 253_402_300_800_000, INSTANT_RULE)
  .meta({ type: 'string', format: 'date-time' })

/**
 * The window up to an instant, since another one or for 30 days. ms since the epoch. Refuses with
 * `body_unprocessable` if it would begin after its end.
 */
export function windowOf(until: number, since = Math.max(until - DEFAULT_WINDOW_MS, 0)): DecisionWindow {
  if (since >= until)
    throw unprocessableBody([{ field: 'since', message: 'must be before the end of the window' }])
  return { since: timestamp(since), until: timestamp(until) }
}
