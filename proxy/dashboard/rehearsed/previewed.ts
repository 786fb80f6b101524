import type { ChangePreview as Made } from '../../admin/conditions/view.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'

export type ChangePreviewView = OperationResult<Made>['value']
