import { z } from 'zod'
import { resolve } from '../conditions/resolve.ts'
import { run } from '../conditions/run.ts'
import { preview } from '../conditions/view.ts'
import { windowOf } from '../conditions/window.ts'
import { changes } from '../operation/changes.ts'
import { operation } from '../operation/operation.ts'

/**
 * Says what changes would have done to the calls of the last 30 days, as a rehearsal does, and records nothing: a page
 * asks for it before its form asks for the change.
 */
export const previewChanges = operation({
  name: 'previewChanges',
  demands: 'admin.grant',
  action: 'admin.read',
  summary: 'Says what changes of authority would have done, and records nothing.',
  takes: { body: z.strictObject({ changes }) },
  output: preview,
  status: 200,
  reasons: ['overloaded'],
  run: async (context, { body }, caller) => {
    const resolved = await resolve(context, body.changes)
    return { value: await run(context, caller, resolved, windowOf(caller.at)) }
  },
})
