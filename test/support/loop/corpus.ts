import { answerItems } from './answers.ts'
import { bodyItems } from './bodies.ts'
import { headItems } from './heads.ts'
import { operatorItems } from './operators.ts'

export type { Item } from './request.ts'

/** Every input, those of strangers first. */
export const ITEMS = [...headItems, ...bodyItems, ...answerItems, ...operatorItems] as const
