import type { Preview as Made } from '../../admin/conditions/view.ts'
import type { Result } from '../../admin/operation/operation.ts'

/** What a change would have done, as operations show it. */
export type Preview = Result<Made>['value']
