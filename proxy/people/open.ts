import type Provider from 'oidc-provider'
import { PrincipalQuota } from '../../plugins/secrets/quota.ts'
import type { MonotonicClock } from '../../plugins/secrets/throttle.ts'
import type { TokenKeys } from '../auth/token-keys.ts'
import type { ResolveHost } from '../egress/agent.ts'
import { PeopleStateAdapter } from './oauth/adapter.ts'
import { documentFetcher } from './oauth/client-fetch.ts'
import { clientFinder } from './oauth/clients.ts'
import { redeemIdJag } from './oauth/id-jag.ts'
import { tokenIssuer, userFinder } from './oauth/issue.ts'
import { grantTypesOf, makeProvider } from './oauth/provider.ts'
import { PeopleService } from './oauth/service.ts'
import { oauthErrorPage } from './pages/error-pages.ts'
import type { PeopleSignIn } from './pages/sign-in.ts'

/** The tokens of one grant in a minute: each is a row of the ledger. */
const MAX_TOKENS_PER_MINUTE = 60
/** The client documents that are fetched in a minute, whoever names them. */
const MAX_FETCHES_PER_MINUTE = 30

/** Makes what is counted at the listener for people. */
export const peopleQuotas = (now: MonotonicClock) => ({
  tokens: new PrincipalQuota(now, () => MAX_TOKENS_PER_MINUTE),
  fetches: new PrincipalQuota(now, () => MAX_FETCHES_PER_MINUTE),
})

interface OpeningPeople extends Omit<PeopleSignIn, 'service'> {
  readonly url: string
  readonly keys: TokenKeys
  readonly quotas: ReturnType<typeof peopleQuotas>
  /** 32 bytes each, the same in all processes of the service. */
  readonly stateKey: Buffer
  readonly clientKey: Buffer
  readonly resolve: ResolveHost
}

/** Makes the authorization server of one configuration. Its library is loaded by the first request. */
export function openPeople(opening: OpeningPeople): PeopleSignIn {
  const { url, keys, context, options, log } = opening
  const make = (signer: object): Promise<Provider> => makeProvider(partsOf(opening, signer))
  const service = new PeopleService({ url, ledger: context.ledger, keys, make })
  // While nobody waits: it takes half a second.
  service.provider().catch((error: unknown) => log.error({ err: error }, 'people cannot sign in'))
  return { ...opening, options, service }
}

function partsOf(opening: OpeningPeople, signer: object): Parameters<typeof makeProvider>[0] {
  const { url, context, options, quotas, stateKey, clientKey, resolve, log } = opening
  const { database, configDigest } = context
  const grantTypes = grantTypesOf(options)
  const means = { database, configDigest, tokens: quotas.tokens }
  const clientOf = clientFinder(options, clientKey, grantTypes)
  return {
    ...{ url, options, signer, clientKey },
    adapter: (kind) => new PeopleStateAdapter(kind, { database, key: stateKey, configDigest, clientOf }),
    fetch: documentFetcher({ options, grantTypes, fetches: quotas.fetches, resolve }),
    findUser: userFinder(means),
    issue: tokenIssuer(means),
    idJag: redeemIdJag(opening, means),
    renderError: (ctx, out) => {
      const { headers = {}, body } = oauthErrorPage(out)
      ctx.set(headers)
      ctx.body = body
    },
    onError: (error) => log.error({ err: error }, 'the sign-in of a person failed'),
  }
}
