import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'

/**
 * GET /proxy/activity/live: server-sent events, one where rows were recorded since the last. The page then asks for
 * itself once more: what a call is shown as is made in one place. Whoever may no more is cut off as any open answer is.
 */
export const liveActivity =
  ({ followers }: Pick<DashboardContext, 'followers'>) =>
  async ({ actor, hangup }: AdministrationFacts): Promise<Reply> => {
    const source = followers.open(actor.id)
    // Also where nobody is left to send it to.
    if (hangup.gone) source.destroy()
    else hangup.onGone(() => source.destroy())
    const headers = { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' }
    return { status: 200, headers, body: { source } }
  }
