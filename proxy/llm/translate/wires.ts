import type { ApiWire } from '../dialects/dialect.ts'

/** The wires in which a caller's request is told, the best one first. */
export const TOLD_IN: Readonly<Record<ApiWire, readonly ApiWire[]>> = {
  messages: ['responses', 'chat'],
  responses: ['messages', 'chat'],
  chat: ['messages', 'responses'],
}
