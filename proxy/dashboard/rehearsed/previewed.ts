import type { ChangePreview as Made } from '../../admin/conditions/view.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'

/** What a change would have done, as operations show it. */
export type ChangePreviewView = OperationResult<Made>['value']
