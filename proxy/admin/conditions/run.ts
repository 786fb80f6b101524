import type { DecisionWindow } from '../../../db/ledger/rehearsal/rehearse.ts'
import type { WalkProgress } from '../../../db/ledger/rehearsal/task.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { etagOf } from '../operation/operation.ts'
import type { RehearsalPurpose } from '../operation/places.ts'
import { evaluateWithChanges } from './expected.ts'
import type { ResolvedChanges } from './resolve.ts'
import { type ChangePreview, rehearsalView } from './view.ts'
import { windowOf } from './window.ts'

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
  const task = { kind: 'rehearse', changes: laid, wanted: { ...window, principals } } as const
  const rehearsed = await rehearsalPlaces.run(purpose, actor.id, () =>
    walkCalls(task, hangup.signal, onProgress),
  )
  const expectations = await evaluateWithChanges(context, laid)
  return rehearsalView(database, { rehearsed, window, at, etags, expectations })
}

export function previewOf(
  context: AdminContext,
  caller: AdminCaller,
  principal: PrincipalRecord,
  capabilities: readonly string[],
): Promise<ChangePreview> {
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
  return runRehearsal(context, caller, resolved, windowOf(caller.at))
}
