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
  | 'invitation'
  | 'metrics_token'

export interface ChangeAuthor {
  /** The name in the ledger: a principal's own, `admin` or `socket:<uid>`. */
  readonly id: string
  readonly type: PrincipalType
  readonly via: AuthenticationMethod
  /**
   * Asked in the transaction of each change: the authority of its author is what it was when it was judged.
   */
  readonly standing: readonly RowAssertion[]
}

export interface ActingOperator extends ChangeAuthor {
  /** The set it holds now, narrowed by its access token. */
  readonly capabilities: readonly string[]
}

export interface ActorAndHolder {
  readonly actor: ActingOperator
  readonly holder: Principal
}

/** An operator that is stored. `scope`: the narrowed set of its access token; null: it is not narrowed. */
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

/** The operators that no table has: by the secret, and by the control socket. */
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
