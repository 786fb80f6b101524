import { z } from 'zod'
import type { RouteRecorders } from '../../plugins/audit/audit.ts'
import type { ActorAndHolder } from '../../plugins/operators/actor.ts'
import type { PinnedCaller } from '../../plugins/pin/pin.ts'
import type { Arrival, Pipeline } from '../../plugins/plugin.ts'
import { EXAMPLE_ID, type RouteDoc } from '../http/doc.ts'
import { type BareRoute, openRoute, type RenderRefusal, withRouteDoc } from '../http/route.ts'
import { backchannelLogout, logoutRefusal } from './oidc/logout.ts'
import { finishSignIn, startSignIn } from './oidc/sign-in.ts'
import type { SubmittedForm, VisitorSession } from './pages/form.ts'
import { refusalPage } from './pages/page.ts'
import {
  signInByCertificate,
  signInBySecret,
  signInPage,
  signInRefusalPage,
  signOut,
} from './pages/sign-in.ts'
import type { SignInContext } from './signing-in.ts'

interface SignInPipelines<Certified extends Arrival & PinnedCaller> {
  readonly anyone: Pipeline<Arrival>
  readonly secret: Pipeline<Arrival & SubmittedForm & ActorAndHolder>
  readonly certificate: Pipeline<Certified>
  readonly signOut: Pipeline<Arrival & SubmittedForm & VisitorSession>
  readonly logout: Pipeline<Arrival & SubmittedForm>
}

/** Makes the pages by which people sign in and out (docs/operators.md#oidc). Open to anybody. */
export function signInRoutes<Certified extends Arrival & PinnedCaller>(
  { anyone, secret, certificate, signOut: leaving, logout }: SignInPipelines<Certified>,
  signIn: SignInContext,
  { anonymous }: RouteRecorders,
): readonly BareRoute[] {
  const page = <Facts extends Arrival>(
    method: 'GET' | 'POST',
    path: string,
    pipeline: Pipeline<Facts>,
    handler: Parameters<typeof openRoute<Facts>>[3],
    refuse: RenderRefusal = refusalPage,
  ) => openRoute(method, path, pipeline, handler, anonymous, refuse)
  const ended = '/proxy/oidc/backchannel-logout'
  return [
    page('GET', '/proxy/sign-in', anyone, signInPage(signIn)),
    page('POST', '/proxy/sign-in', secret, signInBySecret(signIn), signInRefusalPage(signIn)),
    page('POST', '/proxy/sign-in/certificate', certificate, signInByCertificate(signIn)),
    page('POST', '/proxy/sign-out', leaving, signOut(signIn)),
    { ...page('GET', '/proxy/oidc/start', anyone, startSignIn(signIn)), usesUp: true },
    { ...page('GET', '/proxy/oidc/callback', anyone, finishSignIn(signIn)), usesUp: true },
    withRouteDoc(page('POST', ended, logout, backchannelLogout(signIn), logoutRefusal), LOGOUT),
  ]
}

/** Describes the request of the identity provider: the only one below /proxy for a program. */
const LOGOUT: RouteDoc = {
  name: 'backchannelLogout',
  summary: 'Ends the sessions that the identity provider names (OpenID Connect Back-Channel Logout 1.0).',
  caller: 'anyone',
  body: {
    media: 'application/x-www-form-urlencoded',
    schema: z.strictObject({ logout_token: z.string() }),
  },
  answers: { 200: { description: 'They are ended.' } },
  reasons: [
    'not_found',
    'body_invalid',
    'body_encoded',
    'body_too_large',
    'logout_token_invalid',
    'sign_in_unavailable',
  ],
  refuse: (refusal) => logoutRefusal(refusal, { id: EXAMPLE_ID }),
}
