import { z } from 'zod'
import type { DecisionWindow, WalkProgress } from '../../../db/ledger/rehearsal/rehearse.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { unprocessableBody } from '../../../plugins/refusal.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { etagOf } from '../operation/operation.ts'
import type { RehearsalPurpose } from '../operation/places.ts'
import { evaluateWithChanges } from './expected.ts'
import type { ResolvedChanges } from './resolve.ts'
import { type ChangePreview, rehearsalView } from './view.ts'

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

/** The principals whose calls are looked up one by one; of more, all calls of the window are read. */
const MAX_ABOUT = 100

interface RunOptions {
  /** Default: a requested rehearsal. */
  readonly purpose?: RehearsalPurpose
  readonly onProgress?: ((progress: WalkProgress) => void) | undefined
}

/**
 * Rehearses changes while the caller waits. Writes nothing. Refuses with `overloaded` if it, or all, rehearse
 * too much at once for this purpose.
 */
export async function runRehearsal(
  context: AdminContext,
  { actor, at, hangup }: AdminCaller,
  { laid, principals, etags }: ResolvedChanges,
  window: DecisionWindow,
  { purpose = 'rehearsal', onProgress }: RunOptions = {},
): Promise<ChangePreview> {
  const { walkCalls, rehearsalPlaces, database } = context
  const few = principals !== null && principals.length <= MAX_ABOUT ? principals : null
  const task = { kind: 'rehearse', changes: laid, wanted: { ...window, principals: few } } as const
  const rehearsed = await rehearsalPlaces.run(purpose, actor.id, () =>
    walkCalls(task, hangup.signal, onProgress),
  )
  const expectations = await evaluateWithChanges(context, laid)
  return rehearsalView(database, { rehearsed, window, at, etags, expectations })
}

/** Rehearses new sets of principals that were just read. */
export function previewOf(
  context: AdminContext,
  caller: AdminCaller,
  changes: readonly { readonly principal: PrincipalRecord; readonly capabilities: readonly string[] }[],
): Promise<ChangePreview> {
  const principals = new Map(
    changes.map(({ principal, capabilities }) => [principal.principal_ref, { capabilities }]),
  )
  const etags = changes.map(({ principal }) => [principal.principal_id, etagOf(principal)])
  const resolved = {
    laid: { principals, resources: new Map(), bindings: new Map(), settings: {} },
    takesOnly: false,
    principals: [...principals.keys()],
    text: '',
    etags: Object.fromEntries(etags),
  }
  return runRehearsal(context, caller, resolved, windowOf(caller.at))
}
