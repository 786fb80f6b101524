import type { Window } from '../../../db/ledger/rehearsal/rehearse.ts'
import type { Progress } from '../../../db/ledger/rehearsal/task.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import type { AdminContext, Caller } from '../operation/context.ts'
import { etagOf } from '../operation/parse.ts'
import type { RehearsalPurpose } from '../operation/places.ts'
import { judgedWith } from './expected.ts'
import type { Resolved } from './resolve.ts'
import { type Preview, shown } from './view.ts'
import { windowOf } from './window.ts'

interface RunOptions {
  /** Default: a rehearsal that was asked for. */
  readonly purpose?: RehearsalPurpose
  readonly onProgress?: ((progress: Progress) => void) | undefined
}

/**
 * Rehearses changes for a caller, as long as it waits. Writes nothing. Refuses with `overloaded` where it, or all, rehearse
 * too much at once for this purpose.
 */
export async function run(
  context: AdminContext,
  { actor, at, hangup }: Caller,
  { laid, principals, etags }: Resolved,
  window: Window,
  { purpose = 'rehearsal', onProgress }: RunOptions = {},
): Promise<Preview> {
  const { walkCalls, rehearsalPlaces, database } = context
  const task = { kind: 'rehearse', changes: laid, wanted: { ...window, principals } } as const
  const rehearsed = await rehearsalPlaces.in(purpose, actor.id, () =>
    walkCalls(task, hangup.signal, onProgress),
  )
  const expectations = await judgedWith(context, laid)
  return shown(database, { rehearsed, window, at, etags, expectations })
}

/** What another set of capabilities would have done to the calls of a principal in the last 30 days. */
export function previewOf(
  context: AdminContext,
  caller: Caller,
  principal: PrincipalRecord,
  capabilities: readonly string[],
): Promise<Preview> {
  const { principal_id: id, principal_ref: ref } = principal
  const resolved = {
    laid: {
      principals: new Map([[ref, { capabilities }]]),
      resources: new Map(),
      bindings: new Map(),
      settings: {},
    },
    takesOnly: false,
    principals: [ref],
    text: '',
    etags: { [id]: etagOf(principal) },
  }
  return run(context, caller, resolved, windowOf(caller.at))
}
