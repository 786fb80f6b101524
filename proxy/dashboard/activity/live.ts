import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'

/**
 * GET /proxy/activity/live: server-sent events. The page then asks for itself once more, so one place renders
 * calls.
 */
export const liveActivity =
  ({ followers }: Pick<DashboardContext, 'followers'>) =>
  async ({ actor, hangup }: AdministrationFacts): Promise<Reply> => {
    const source = followers.open(actor.id)
    // Also if nobody is left to send it to.
    if (hangup.gone) source.destroy()
    else hangup.onGone(() => source.destroy())
    const headers = { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }
    return { status: 200, headers, body: { source } }
  }
