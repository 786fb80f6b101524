import type { Result } from '../../admin/operation.ts'
import type { Preview as Made } from '../../admin/rehearsals/view.ts'

/** What a change would have done, as operations show it. */
export type Preview = Result<Made>['value']
