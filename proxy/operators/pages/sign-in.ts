import { readSecret } from '../../../db/operators/secret.ts'
import { endStoredSession } from '../../../db/operators/sessions.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { type ActorAndHolder, storedOperator } from '../../../plugins/operators/actor.ts'
import { SESSION_COOKIE, setCookie } from '../../../plugins/operators/sessions.ts'
import type { PinnedCaller } from '../../../plugins/pin/pin.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { commitChange } from '../../admin/operation/change.ts'
import type { Reply } from '../../http/reply.ts'
import { beginSession, ROW_DIGITS } from '../sessions/open.ts'
import type { SignInContext } from '../signing-in.ts'
import type { SubmittedForm, VisitorSession } from './form.ts'
import { EMPTY_HTML, type HtmlFragment, html } from './html.ts'
import { nextPage, plainPage, redirectPage, refusalPage, seeOther, withNext } from './page.ts'

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

export const signInPage =
  ({ context, provider, pin }: Pick<SignInContext, 'context' | 'provider' | 'pin'>) =>
  async (facts: Arrival): Promise<Reply> => {
    const next = nextPage(facts.query)
    const shown = await operatorOfCertificate(pin, facts)
    const byCertificate = html`<form method="post" action="${withNext('/proxy/sign-in/certificate', next)}"><p>This browser has shown a certificate. <button>Sign in as ${shown ?? ''}</button></p></form>`
    const { hash, disabled } = await readSecret(context.database)
    const hasSecret = !disabled && (hash !== '' || context.hasEnvironmentSecret)
    const byProvider = html`<p><a class="button" href="${withNext('/proxy/oidc/start', next)}">Sign in with ${hostOf(provider?.options.issuer)}</a></p>`
    const none =
      hash === '' && !disabled
        ? html`<p>This service is not set up yet. Open the link in its terminal that ends in <code>/proxy/setup?code=…</code>. It is printed at each start until the operator secret is set.</p>`
        : html`<p>Signing in with a browser is not set up here. Operators use their certificates.</p>`
    return plainPage({
      title: 'Sign in',
      body: html`${serviceName(context)}${shown === null ? EMPTY_HTML : byCertificate}${provider ? byProvider : EMPTY_HTML}${hasSecret ? secretForm(next) : EMPTY_HTML}${provider || hasSecret || shown !== null ? EMPTY_HTML : none}`,
    })
  }

const secretForm = (
  next: string,
): HtmlFragment => html`<form method="post" action="${withNext('/proxy/sign-in', next)}">
<label>Operator secret <input type="password" name="secret" required autocomplete="current-password" maxlength="72"></label>
<small>12 to 72 letters, digits and symbols, no spaces. For when nothing else works.</small>
<p><button>Sign in</button></p></form>`

/** Says where somebody signs in: the organisation's certificate says as much to anybody. */
const serviceName = ({ organisation }: Pick<SignInContext['context'], 'organisation'>): HtmlFragment =>
  html`<p><strong>Sallyport</strong>, the gateway of <strong>${organisation}</strong></p>`

export const signInRefusalPage =
  ({ context }: Pick<SignInContext, 'context'>) =>
  (refusal: Refusal, facts: Arrival): Reply =>
    refusal.reason === 'admin_secret_invalid'
      ? plainPage({
          title: 'Sign in',
          body: html`${serviceName(context)}<p role="alert">${refusal.message}</p>${secretForm(nextPage(facts.query))}`,
          status: refusal.status,
        })
      : refusalPage(refusal, facts)

const hostOf = (issuer: string | undefined): string => URL.parse(issuer ?? '')?.host ?? ''

/** The operator whose certificate a connection has shown; null if it is nobody's who could sign in. */
async function operatorOfCertificate(pin: SignInContext['pin'], facts: Arrival): Promise<string | null> {
  if (facts.peer === null) return null
  try {
    const { principal } = await pin.admit(facts)
    return principal.type === 'operator' ? principal.id : null
  } catch (error) {
    if (error instanceof Refusal) return null
    throw error
  }
}

const NO_PROVIDER = {
  amr: [],
  issuer: null,
  subject: null,
  providerSession: null,
  assertions: [],
  detail: {},
}

/** POST /proxy/sign-in/certificate: begins a session for the operator of a checked certificate. */
export const signInByCertificate =
  (signing: SignInContext) =>
  async (facts: Arrival & PinnedCaller): Promise<Reply> => {
    const { id, at, query, peer, principal } = facts
    const { context, sessions } = signing
    if (principal.type !== 'operator' || peer === null) throw new Refusal('sign_in_refused')
    const { ref, revision } = principal
    const unchanged = authorityUnchanged(context.database)('operator', ref, revision)
    const cookie = await beginSession(signing, {
      id,
      at,
      replaces: sessions.digestIn(facts),
      author: storedOperator(principal, 'certificate', [unchanged]).actor,
      via: 'certificate',
      principalId: principal.id,
      marks: [peer.thumbprint],
      ...NO_PROVIDER,
    })
    return seeOther(nextPage(query), { 'set-cookie': cookie })
  }

/** POST /proxy/sign-in: begins a session for a user with the operator secret, which a plugin has checked. */
export const signInBySecret =
  (signing: SignInContext) =>
  async (facts: Arrival & SubmittedForm & ActorAndHolder): Promise<Reply> => {
    const { id, at, query, actor } = facts
    const { context, sessions } = signing
    // The actor's standing asserts it: if it is another one by now, no session begins.
    const { hash } = await readSecret(context.database)
    const cookie = await beginSession(signing, {
      id,
      at,
      replaces: sessions.digestIn(facts),
      author: actor,
      via: 'secret',
      principalId: null,
      marks: [sessions.secretMark(hash)],
      ...NO_PROVIDER,
    })
    return seeOther(nextPage(query), { 'set-cookie': cookie })
  }
