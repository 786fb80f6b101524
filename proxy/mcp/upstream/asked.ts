import type { Era } from '../protocol/versions.ts'
import type { Credentials } from './credentials.ts'
import type { Limits } from './events.ts'

/** What an answer is held against. */
export interface Expectation {
  readonly requestId: number
  readonly era: Era
  readonly credentials: Credentials
  readonly limits: Limits
  /** Of the legacy era: whether the request was sent in a session, and whether it named it. */
  readonly session: 'none' | 'unnamed' | 'named'
  /** Called once, when nothing more can come. False: the upstream may still be at work on the request. */
  readonly settled: (answered: boolean) => void
}
