import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from '../frame/dashboard.ts'

/**
 * GET /proxy/activity/live: server-sent events, one if rows were recorded since the last. The page then asks
 * for itself once more: one place renders calls. An operator who may no more is cut off as any open answer
 * is.
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
