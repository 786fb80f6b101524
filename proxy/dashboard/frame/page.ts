import type { Administered } from '../../../plugins/operators/operator.ts'
import type { Reply } from '../../http/reply.ts'
import type { Dashboard } from './dashboard.ts'
import { type Framed, frame } from './frame.ts'

/** A page: what it shows to the operator who asks for it. */
export type Page = (dashboard: Dashboard, facts: Administered) => Promise<Framed> | Framed

/** Makes the handler of a page. */
export const showing =
  (page: Page, dashboard: Dashboard) =>
  async (facts: Administered): Promise<Reply> =>
    frame(dashboard, facts, await page(dashboard, facts))
