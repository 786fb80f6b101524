import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Reply } from '../../http/reply.ts'
import type { DashboardContext } from './dashboard.ts'
import { frame, type PageContent } from './frame.ts'

export type DashboardPage = (
  dashboard: DashboardContext,
  facts: AdministrationFacts,
) => Promise<PageContent> | PageContent

export const pageHandler =
  (page: DashboardPage, dashboard: DashboardContext) =>
  async (facts: AdministrationFacts): Promise<Reply> =>
    frame(dashboard, facts, await page(dashboard, facts))
