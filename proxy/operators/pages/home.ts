import { endSession } from '../../../db/operators/sessions.ts'
import { SESSION_COOKIE, setCookie } from '../../../plugins/operators/cookies.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { change } from '../../admin/change.ts'
import type { Reply } from '../../http/reply.ts'
import { ROW_DIGITS } from '../sessions/begin.ts'
import type { SigningIn } from '../signing-in.ts'
import { html } from './html.ts'
import { withNext } from './next.ts'
import { hop, page, seeOther } from './page.ts'
import { isFromElsewhere, type Visited } from './visitor.ts'

const VIA: Readonly<Record<string, string>> = {
  oidc: 'the identity provider',
  secret: 'the operator secret',
}

/** GET /proxy: who is signed in, by what, and until when. Whoever is not is sent to where one signs in. */
export const home = (facts: Arrival & Visited): Reply => {
  const { visitor, path } = facts
  if (isFromElsewhere(facts)) return hop(path)
  if (!visitor) return seeOther(withNext('/proxy/sign-in', path))
  const { actor, session } = visitor
  return page({
    title: 'Signed in',
    body: html`<dl><dt>Operator</dt><dd>${actor.id}</dd>
<dt>By</dt><dd>${VIA[actor.via] ?? actor.via}${session.amr.length > 0 ? ` (${session.amr.join(', ')})` : ''}</dd>
<dt>Holds</dt><dd>${actor.capabilities.join(', ') || 'nothing'}</dd>
<dt>Until</dt><dd>${new Date(session.expiresAt).toISOString()}</dd></dl>
<form method="post" action="/proxy/sign-out"><input type="hidden" name="csrf" value="${session.csrf}">
<button>Sign out</button></form>`,
  })
}

/** What a browser forgets of this host. */
const FORGET = '"cache", "cookies"'

/**
 * POST /proxy/sign-out: ends the session, here and, where the provider has a page for it, there (OpenID Connect
 * RP-Initiated Logout 1.0). A plugin has checked that the page is ours.
 */
export const signOut =
  ({ context, provider }: Pick<SigningIn, 'context' | 'provider'>) =>
  async ({ id, at, visitor }: Arrival & Visited): Promise<Reply> => {
    const headers = {
      'set-cookie': setCookie(SESSION_COOKIE, '', 'Strict', 0),
      'clear-site-data': FORGET,
    }
    if (!visitor) return seeOther('/proxy/sign-in', headers)
    const { actor, session } = visitor
    // Whatever has become of its operator meanwhile.
    await change(
      context,
      { id, at, actor: { ...actor, standing: [] } },
      {
        action: 'admin.signed_out',
        detail: { by: 'itself', session: session.digest.slice(0, ROW_DIGITS) },
        statements: [endSession(context.database, session.digest)],
      },
    )
    // A provider that is down keeps nobody signed in here.
    const found = actor.via === 'oidc' ? await provider?.discovered().catch(() => null) : null
    // No redirect: `form-action` would stop it.
    return found?.endSession ? hop(found.endSession.href, headers) : seeOther('/proxy/sign-in', headers)
  }
