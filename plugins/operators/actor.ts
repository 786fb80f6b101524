import type { PrincipalType } from '../../db/schema.ts'
import type { RowAssertion } from '../../db/support/statement.ts'
import type { Principal } from '../facts.ts'
import { ADMIN_CAPABILITIES } from './capabilities.ts'

/** The door by which somebody has come to administration, as `detail.via` of rows says it. */
export type AuthenticationMethod =
  | 'secret'
  | 'certificate'
  | 'oidc'
  | 'socket'
  | 'setup_code'
  | 'metrics_token'

/** Whoever makes a change: as its row says it, and what must be so when it is stored. */
export interface ChangeAuthor {
  /** The name in the ledger: a principal's own, `admin` or `socket:<uid>`. */
  readonly id: string
  readonly type: PrincipalType
  readonly via: AuthenticationMethod
  /**
   * Asked in the transaction of each change: that the authority of its author is what it was when it was judged.
   * Whoever was deactivated meanwhile changes nothing any more.
   */
  readonly standing: readonly RowAssertion[]
}

/** An operator at work. */
export interface ActingOperator extends ChangeAuthor {
  /** What it holds now, as far as its access token is not narrowed. */
  readonly capabilities: readonly string[]
}

/** What judges an operator: the actor, and the holder that the capability gate asks. */
export interface ActorAndHolder {
  readonly actor: ActingOperator
  readonly holder: Principal
}

/** An operator that is stored. `scope`: what its access token is narrowed to; null: it is not. */
export const storedOperator = (
  principal: Principal,
  via: AuthenticationMethod,
  standing: readonly RowAssertion[],
  scope: readonly string[] | null = null,
): ActorAndHolder => ({
  actor: {
    id: principal.ref,
    type: principal.type,
    via,
    standing,
    capabilities: scope
      ? principal.capabilities.filter((one) => scope.includes(one))
      : principal.capabilities,
  },
  holder: principal,
})

/** The operators that no table has: whoever has the secret, and whoever reaches the control socket. */
export function unstoredOperator(
  id: string,
  via: AuthenticationMethod,
  standing: readonly RowAssertion[],
): ActorAndHolder {
  const capabilities = ADMIN_CAPABILITIES
  return {
    actor: { id, type: 'operator', via, standing, capabilities },
    holder: {
      id,
      ref: id,
      type: 'operator',
      capabilities,
      dpopJkt: null,
      previousDpopJkt: null,
      inGrace: false,
      revision: 0,
    },
  }
}
