import { endStoredSession } from '../../../db/operators/sessions.ts'
import { SESSION_COOKIE, setCookie } from '../../../plugins/operators/cookies.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { commitChange } from '../../admin/operation/change.ts'
import type { Reply } from '../../http/reply.ts'
import { ROW_DIGITS } from '../sessions/begin.ts'
import type { SignInContext } from '../signing-in.ts'
import { redirectPage, seeOther } from './page.ts'
import type { VisitorSession } from './visitor.ts'

/** The data of this host that a browser forgets. */
const FORGET = '"cache", "cookies"'

/**
 * POST /proxy/sign-out: ends the session here and, if the provider has a page for it, there (OpenID Connect
 * RP-Initiated Logout 1.0).
 */
export const signOut =
  ({ context, provider }: Pick<SignInContext, 'context' | 'provider'>) =>
  async ({ id, at, ending }: Arrival & VisitorSession): Promise<Reply> => {
    const headers = {
      'set-cookie': setCookie(SESSION_COOKIE, '', 'Strict', 0),
      'clear-site-data': FORGET,
    }
    if (!ending) return seeOther('/proxy/sign-in', headers)
    const { author, digest } = ending
    await commitChange(
      context,
      { id, at, actor: author },
      {
        action: 'admin.signed_out',
        detail: { by: 'itself', session: digest.slice(0, ROW_DIGITS) },
        statements: [endStoredSession(context.database, digest)],
      },
    )
    // A provider that is down keeps nobody signed in here.
    const found = author.via === 'oidc' ? await provider?.discovered().catch(() => null) : null
    // No redirect: `form-action` would stop it.
    return found?.endSession
      ? redirectPage(found.endSession.href, headers)
      : seeOther('/proxy/sign-in', headers)
  }
