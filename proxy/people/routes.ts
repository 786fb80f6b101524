import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import { jwks, RESOURCE_METADATA } from '../auth/metadata.ts'
import type { TokenKeys } from '../auth/token-keys.ts'
import { type BareRoute, openRoute, type RenderRefusal } from '../http/route.ts'
import { ACCOUNT_CALLBACK, CLIENT_DOCUMENT } from '../mcp/accounts/accounts.ts'
import type { SubmittedForm } from '../operators/pages/form.ts'
import { describeOurClient, describePeopleResource, describePeopleServer } from './metadata.ts'
import { authorize, pushAuthorization } from './oauth/authorize.ts'
import { accountPage, endOwnGrant, signOutAccount } from './pages/account.ts'
import { decideOwnCall, ownApprovalPage } from './pages/approvals.ts'
import {
  beginConnecting,
  beginConnectingFor,
  connectForPage,
  connectPage,
  finishConnecting,
} from './pages/connect.ts'
import { answerConsent, consentPage } from './pages/consent.ts'
import { peopleOauthRefusal, peopleRefusalPage } from './pages/error-pages.ts'
import { endOwnAccount } from './pages/own-accounts.ts'
import { finishPeopleSignIn, type PeopleSignIn } from './pages/sign-in.ts'

interface PeoplePipelines {
  readonly anyone: Pipeline<Arrival>
  /** A form of our own pages. */
  readonly form: Pipeline<Arrival & SubmittedForm>
}

export interface PeopleHandlers {
  readonly signIn: PeopleSignIn
  readonly keys: TokenKeys
  /** The document about the MCP endpoint that a request was sent to. */
  readonly metadataUrl: (asked: Pick<Arrival, 'headers' | 'path'>) => string
  /** Tells whether anything here takes a token without a key. */
  readonly takesBearer: () => Promise<boolean>
}

/** Makes the routes of the listener for people (docs/people.md). */
export function peopleRoutes(
  { anyone, form }: PeoplePipelines,
  { signIn, keys, takesBearer }: PeopleHandlers,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const { service, options } = signIn
  const open = (
    method: 'GET' | 'POST',
    path: string,
    handler: Parameters<typeof openRoute<Arrival>>[3],
    refuse?: RenderRefusal,
  ) => openRoute(method, path, anyone, handler, anonymous, refuse)
  const page = (method: 'GET' | 'POST', path: string, handler: Parameters<typeof openRoute<Arrival>>[3]) => ({
    ...open(method, path, handler, peopleRefusalPage),
    usesUp: true,
  })
  const submitted = (path: string, handler: Parameters<typeof openRoute<Arrival & SubmittedForm>>[3]) =>
    openRoute('POST', path, form, handler, anonymous, peopleRefusalPage)
  const program = (path: string) =>
    open('POST', path, (arrival) => service.answer(arrival), peopleOauthRefusal)
  const resource = describePeopleResource({ url: service.url, options, takesBearer })
  return [
    ...['', '/v1/mcp', '/v1/mcp/{resource}', '/v1/{resource}/mcp'].map((door) =>
      open('GET', `${RESOURCE_METADATA}${door}`, resource),
    ),
    ...['oauth-authorization-server', 'openid-configuration'].map((name) =>
      open('GET', `/.well-known/${name}`, describePeopleServer(signIn)),
    ),
    open('GET', '/.well-known/jwks.json', jwks(keys)),
    page('GET', '/oauth/authorize', authorize(service)),
    page('POST', '/oauth/authorize', authorize(service)),
    page('GET', '/oauth/authorize/{uid}', (arrival) => service.answer(arrival)),
    page('GET', '/oauth/callback', finishPeopleSignIn(signIn)),
    page('GET', '/oauth/consent/{uid}', consentPage(signIn)),
    submitted('/oauth/consent/{uid}', answerConsent(signIn)),
    open('POST', '/oauth/par', pushAuthorization(service), peopleOauthRefusal),
    program('/oauth/token'),
    program('/oauth/revoke'),
    ...(options.clients.registration === 'sealed' ? [program('/oauth/register')] : []),
    open('GET', CLIENT_DOCUMENT, describeOurClient(service.url)),
    page('GET', '/account', accountPage(signIn)),
    page('GET', '/account/approvals/{id}', ownApprovalPage(signIn)),
    submitted('/account/approvals/{id}', decideOwnCall(signIn)),
    submitted('/account/end', endOwnGrant(signIn)),
    submitted('/account/accounts/end', endOwnAccount(signIn)),
    page('GET', '/connect/{id}', connectPage(signIn)),
    submitted('/connect/{id}', beginConnecting(signIn)),
    page('GET', '/connect/as/{ticket}', connectForPage(signIn)),
    submitted('/connect/as/{ticket}', beginConnectingFor(signIn)),
    page('GET', ACCOUNT_CALLBACK, finishConnecting(signIn)),
    submitted('/account/sign-out', signOutAccount(signIn)),
  ]
}
