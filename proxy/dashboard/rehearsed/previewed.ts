import type { ChangePreview as Made } from '../../admin/conditions/view.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'

/** A change's preview, as operations show it. */
export type ChangePreviewView = OperationResult<Made>['value']
