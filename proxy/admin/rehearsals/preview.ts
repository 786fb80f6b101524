import { z } from 'zod'
import { resolveChanges } from '../conditions/resolve.ts'
import { runRehearsal } from '../conditions/run.ts'
import { previewShape } from '../conditions/view.ts'
import { windowOf } from '../conditions/window.ts'
import { rehearsalChanges } from '../operation/changes.ts'
import { operation } from '../operation/operation.ts'

/** The effect of changes on the calls of the last 30 days. Records nothing. */
export const previewChanges = operation({
  name: 'previewChanges',
  demands: 'admin.grant',
  action: 'admin.read',
  summary: 'Says what changes of authority would have done, and records nothing.',
  takes: { body: z.strictObject({ changes: rehearsalChanges }) },
  output: previewShape,
  status: 200,
  reasons: ['overloaded'],
  run: async (context, { body }, caller) => {
    const resolved = await resolveChanges(context, body.changes)
    return { value: await runRehearsal(context, caller, resolved, windowOf(caller.at)) }
  },
})
