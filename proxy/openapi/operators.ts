import { z } from 'zod'
import { EXAMPLE_ID, type RouteDoc } from '../http/doc.ts'
import { logoutRefusal } from '../operators/oidc/logout.ts'

/** POST /proxy/oidc/backchannel-logout: of all that lies below /proxy, the one that a program asks for. */
export const LOGOUT: RouteDoc = {
  name: 'backchannelLogout',
  summary: 'Ends the sessions that the identity provider names (OpenID Connect Back-Channel Logout 1.0).',
  caller: 'anyone',
  body: {
    media: 'application/x-www-form-urlencoded',
    schema: z.strictObject({ logout_token: z.string() }),
  },
  answers: { 200: { description: 'They are ended.' } },
  reasons: ['not_found', 'body_invalid', 'body_too_large', 'logout_token_invalid', 'sign_in_unavailable'],
  refuse: (refusal) => logoutRefusal(refusal, { id: EXAMPLE_ID }),
}
