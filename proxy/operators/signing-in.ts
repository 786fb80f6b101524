import type { Logger } from 'pino'
import type { RefusalSummaries } from '../../plugins/audit/summaries.ts'
import type { SessionRules, Sessions } from '../../plugins/operators/sessions.ts'
import type { Pinned } from '../../plugins/pin/pin.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import type { RefusalReason } from '../../plugins/refusal.ts'
import type { Quota } from '../../plugins/secrets/quota.ts'
import type { Throttle } from '../../plugins/secrets/throttle.ts'
import type { AdminContext } from '../admin/operation/context.ts'
import type { FairLine } from './oidc/fair-line.ts'
import type { Mapping } from './oidc/mapping.ts'
import type { Provider } from './oidc/provider.ts'

/** What people sign in by, under one configuration. */
export interface SigningIn {
  readonly context: AdminContext
  readonly sessions: Sessions
  /** Whose the certificate of a connection is now. */
  readonly pin: Plugin<Arrival, Pinned>
  readonly rules: SessionRules
  readonly mapping: Mapping
  /** Null: the configuration names none. */
  readonly provider: Provider | null
  /** 32 bytes that seal transactions, the same in all processes of the service. */
  readonly key: Buffer
  /** Counts the codes that the provider would not take, by transaction. */
  readonly wrongCodes: Throttle
  /** The line in which codes wait to be redeemed. */
  readonly exchanges: FairLine
  /** Counts the sessions that begin, by operator. */
  readonly signIns: Quota
  /** Counts the sign-ins of one operator that are too many. */
  readonly summaries: Pick<RefusalSummaries, 'count'>
  /** Counts the rows of refused sign-ins, by person. */
  readonly refusedRows: Throttle
  /** Counts a refusal of whoever it was. */
  readonly count: (reason: RefusalReason) => void
  readonly adminUrls: () => readonly string[]
  readonly log: Logger
}
