// The tasks of the threads of call.ts: a caller can make one take a second.
import { translateRequest } from './plan.ts'

export interface TranslationTasks {
  readonly translate: typeof translateRequest
}

export const openTasks = (): TranslationTasks => ({ translate: translateRequest })
