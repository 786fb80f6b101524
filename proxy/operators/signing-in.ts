import type { Logger } from 'pino'
import type { AnonymousRefusals } from '../../plugins/audit/anonymous.ts'
import type { RefusalSummaries } from '../../plugins/audit/summaries.ts'
import type { BrowserSessions, SessionRules } from '../../plugins/operators/sessions.ts'
import type { PinnedCaller } from '../../plugins/pin/pin.ts'
import type { Arrival, Plugin } from '../../plugins/plugin.ts'
import type { PrincipalQuota } from '../../plugins/secrets/quota.ts'
import type { FailureThrottle } from '../../plugins/secrets/throttle.ts'
import type { AdminContext } from '../admin/operation/context.ts'
import type { FairQueue } from './oidc/fair-line.ts'
import type { ClaimMapping } from './oidc/mapping.ts'
import type { IdentityProvider } from './oidc/provider.ts'

export interface SignInContext {
  readonly context: AdminContext
  readonly sessions: BrowserSessions
  /** Finds the present holder of the certificate of a connection. */
  readonly pin: Plugin<Arrival, PinnedCaller>
  readonly rules: SessionRules
  readonly mapping: ClaimMapping
  /** Null: the configuration names none. */
  readonly provider: IdentityProvider | null
  /** 32 bytes that seal transactions, the same in all processes of the service. */
  readonly key: Buffer
  /** Counts the codes that the provider would not take, by transaction. */
  readonly wrongCodes: FailureThrottle
  /** The line in which codes wait to be redeemed. */
  readonly exchanges: FairQueue
  /** Counts the sessions that begin, by operator. */
  readonly signIns: PrincipalQuota
  /** Counts the sign-ins of one operator that are too many. */
  readonly summaries: Pick<RefusalSummaries, 'count'>
  /** Counts the rows of refused sign-ins, by person. */
  readonly refusedRows: FailureThrottle
  readonly anonymous: Pick<AnonymousRefusals, 'count'>
  readonly adminPages: () => readonly string[]
  readonly log: Logger
}
