import type { UpstreamAccount } from '../../../db/mcp/accounts.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { RowAssertion } from '../../../db/support/statement.ts'
import type { DecisionAccount } from '../../../plugins/audit/audit.ts'
import { type Accounts, IssuerUnavailable } from '../accounts/accounts.ts'
import type { CallerAccount, RefusedAuthorization } from '../upstream/connections.ts'
import { McpUpstreamError } from '../upstream/errors.ts'

interface CallAccountDependencies {
  readonly accounts: Pick<Accounts, 'authorization' | 'refresh'>
  readonly resource: McpResource
  /** Makes what a call fails with whose person must be asked: for these scopes, or all of the settings'. */
  readonly consent: (scopes: readonly string[]) => Error
  readonly notEnded: (id: string) => RowAssertion
}

type AuthorizedRequest = Parameters<CallerAccount['authorize']>[0]
type AccountCredentials = Awaited<ReturnType<CallerAccount['authorize']>>

/** The account that one call goes by, at whatever revision it comes to meanwhile. */
export class CallAccount implements CallerAccount, DecisionAccount {
  readonly #of: CallAccountDependencies
  #account: UpstreamAccount
  #nonce: string | null = null
  /** True: the call has waited for a new token. */
  refreshed = false

  constructor(dependencies: CallAccountDependencies, account: UpstreamAccount) {
    this.#of = dependencies
    this.#account = account
  }

  get id(): string {
    return this.#account.id
  }

  get assertions(): readonly RowAssertion[] {
    return [this.#of.notEnded(this.id)]
  }

  async authorize(request: AuthorizedRequest): Promise<AccountCredentials> {
    const nonce = this.#nonce
    const asked = { ...request, ...(nonce !== null && { nonce }) }
    const use = await asking(this.#of.accounts.authorization(this.#account, asked))
    if (use === 'ended') throw this.#of.consent([])
    this.#account = use.account
    this.refreshed ||= use.refreshed
    return { headers: use.headers, secrets: use.secrets }
  }

  async renews({ status, headers }: RefusedAuthorization): Promise<boolean> {
    const challenge = challengeIn(headers['www-authenticate'])
    if (status === 403) return this.#judgeScopes(challenge)
    const { 'dpop-nonce': nonce } = headers
    const isNew = typeof nonce === 'string' && nonce !== this.#nonce
    if (isNew) this.#nonce = nonce
    if (isNew && challenge.error === 'use_dpop_nonce') return true
    const { revision } = this.#account
    const now = await asking(this.#of.accounts.refresh(this.#account, revision))
    if (now === 'ended') throw this.#of.consent([])
    this.#account = now
    // A token that was new when it was refused is not had newer.
    if (now.revision === revision) return false
    this.refreshed = true
    return true
  }

  /** Asks the person again for scopes that the server names, if the settings have them (RFC 6750 §3.1). */
  #judgeScopes({ error, scopes: named }: Challenge): false {
    const { scopes: allowed = [] } = this.#of.resource.oauth ?? {}
    const { scopes: held } = this.#account
    if (error !== 'insufficient_scope' || !named.every((scope) => allowed.includes(scope))) return false
    // What it has, and is refused all the same, is not had by asking again.
    if (named.every((scope) => held.includes(scope))) return false
    throw this.#of.consent([...new Set([...held.filter((scope) => allowed.includes(scope)), ...named])])
  }
}

/** Says of an issuer that cannot be asked that the server cannot be: the call did nothing. */
async function asking<Done>(work: Promise<Done>): Promise<Done> {
  try {
    return await work
  } catch (error) {
    if (!(error instanceof IssuerUnavailable)) throw error
    throw new McpUpstreamError('unreachable', `the issuer of its accounts: ${error.message}`, {
      cause: error,
    })
  }
}

interface Challenge {
  readonly error: string
  readonly scopes: readonly string[]
}

/** More of a header is not looked at. Characters. */
const MAX_CHALLENGE = 4_096
const MAX_NAMED = 64

/** Reads what a challenge says of the token (RFC 6750 §3). Another scheme's parameters count for it, too. */
function challengeIn(header: RefusedAuthorization['headers'][string]): Challenge {
  const text = (typeof header === 'string' ? header : (header?.join(', ') ?? '')).slice(0, MAX_CHALLENGE)
  const [, error = ''] = /[\s,]error="?([\w-]{1,64})/i.exec(text) ?? []
  const [, scope = ''] = /[\s,]scope="([^"]*)"/i.exec(text) ?? []
  return {
    error,
    scopes: scope
      .split(' ')
      .filter((one) => one !== '')
      .slice(0, MAX_NAMED + 1),
  }
}
