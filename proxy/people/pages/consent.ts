import { createHmac, timingSafeEqual } from 'node:crypto'
import type Provider from 'oidc-provider'
import type { InteractionDetails, ProviderClient } from 'oidc-provider'
import { isCapability } from '../../../db/capabilities.ts'
import { newGrantId } from '../../../db/people/grants.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { EMPTY_HTML, html } from '../../operators/pages/html.ts'
import { plainPage, redirectPage } from '../../operators/pages/page.ts'
import type { BridgedExchange } from '../oauth/bridge.ts'
import { clientDigest, grantClientOf, isLocalRedirect } from '../oauth/clients.ts'
import { scopesOf } from '../options.ts'
import { beginSignIn, type PeopleSignIn } from './sign-in.ts'

/** The token of a form of this very page, which no other page can know. */
export const formTokenOf = (key: Buffer, page: string): string =>
  createHmac('sha256', key).update(`form ${page}`).digest('base64url')

export function requireFormToken(key: Buffer, page: string, given: string | undefined): void {
  const [expected, sent] = [Buffer.from(formTokenOf(key, page)), Buffer.from(given ?? '')]
  if (expected.length !== sent.length || !timingSafeEqual(expected, sent)) throw new Refusal('csrf_invalid')
}

interface OpenSignIn {
  readonly exchange: BridgedExchange
  readonly details: InteractionDetails
  readonly client: ProviderClient
}

/** Finds the sign-in of this browser. Refuses with `sign_in_not_begun` any other. */
async function openSignIn(
  { service }: PeopleSignIn,
  library: Provider,
  arrival: Arrival,
  uid: string | undefined,
): Promise<OpenSignIn> {
  const exchange = await service.exchange(arrival)
  const details = await library.interactionDetails(exchange.req, exchange.res).catch(() => null)
  if (!details || details.uid !== uid) throw new Refusal('sign_in_not_begun')
  const client = await library.Client.find(textOf(details.params.client_id))
  if (!client) throw new Refusal('sign_in_not_begun')
  return { exchange, details, client }
}

// What is consented to is the client as the page has shown it.
const consentOf = (uid: string, client: ProviderClient): string => `${uid} ${clientDigest(client.metadata())}`

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

/** GET /oauth/consent/{uid}: has the person sign in, or asks whether the client may call in their name. */
export const consentPage =
  (signing: PeopleSignIn) =>
  (arrival: Arrival): Promise<Reply> => {
    const { service, context } = signing
    return service.perform(arrival, async (library) => {
      const { details, client } = await openSignIn(signing, library, arrival, arrival.params.uid)
      if (details.prompt.name === 'login')
        return beginSignIn(signing, arrival, `/oauth/consent/${details.uid}`)
      const user = await findPrincipal(context.database, 'user', details.session?.accountId ?? '')
      if (!user?.is_active) throw new Refusal('sign_in_refused')
      return plainPage({
        title: 'Allow this program?',
        body: consentForm(signing, arrival, { details, client, user }),
      })
    })
  }

interface ConsentQuestion extends Pick<OpenSignIn, 'details' | 'client'> {
  readonly user: PrincipalRecord
}

function consentForm(
  { options, key }: PeopleSignIn,
  { at }: Arrival,
  { details: { uid, params }, client, user }: ConsentQuestion,
) {
  const redirect = textOf(params.redirect_uri)
  const { host, kind } = grantClientOf(client.clientId, redirect)
  const place = URL.parse(redirect)
  const asked = textOf(params.scope).split(' ')
  const isWhole = asked.some((name) => scopesOf(options).includes(name))
  const reached = user.capabilities.filter((name) => isWhole || asked.includes(name))
  const until = new Date(at + options.grant_hours * 3_600_000).toISOString()
  const name = client.clientName ?? host
  const local = isLocalRedirect(redirect)
    ? html`<p><strong>This program runs on your own machine. Any program there can ask in this name: go on only if you started it just now.</strong></p>`
    : EMPTY_HTML
  return html`<p><strong>${name}</strong> ${kind === 'registered' ? '' : '(its own word)'} wants to call tools in your name, <strong>${user.name}</strong>.</p>
<dl><dt>It comes from</dt><dd>${kind === 'sealed' ? 'it does not say' : host}</dd>
<dt>You are sent back to</dt><dd>${place?.host || (place?.protocol ?? '')}</dd>
<dt>It would reach now</dt><dd>${reached.length === 0 ? 'nothing' : reached.join(', ')}</dd>
<dt>Until</dt><dd>${until}, or until you end it</dd></dl>${local}
<form method="post" action="/oauth/consent/${uid}"><input type="hidden" name="token" value="${formTokenOf(key, consentOf(uid, client))}">
<button name="answer" value="allow">Allow</button> <button name="answer" value="deny">Refuse</button></form>`
}

/** POST /oauth/consent/{uid}: takes the answer. */
export const answerConsent =
  (signing: PeopleSignIn) =>
  (arrival: Arrival & SubmittedForm): Promise<Reply> => {
    const { service, key } = signing
    return service.perform(arrival, async (library) => {
      const found = await openSignIn(signing, library, arrival, arrival.params.uid)
      const { exchange, details } = found
      requireFormToken(key, consentOf(details.uid, found.client), arrival.form.get('token'))
      if (details.prompt.name !== 'consent') throw new Refusal('sign_in_not_begun')
      const isAllowed = arrival.form.get('answer') === 'allow'
      const result = isAllowed ? { consent: await allow(signing, library, found) } : DENIED
      const next = await library.interactionResult(exchange.req, exchange.res, result)
      // Not a redirect: `form-action` would stop it where the client is another site.
      return redirectPage(new URL(next).pathname)
    })
  }

const DENIED = { error: 'access_denied', error_description: 'the person refused' }

async function allow(
  { service, options, context }: PeopleSignIn,
  library: Provider,
  { details: { params, session }, client }: OpenSignIn,
): Promise<{ readonly grantId: string; readonly client: string }> {
  const accountId = session?.accountId ?? ''
  const user = await findPrincipal(context.database, 'user', accountId)
  if (!user?.is_active) throw new Refusal('sign_in_refused')
  const grant = new library.Grant({ clientId: client.clientId, accountId, jti: newGrantId() })
  const known = scopesOf(options)
  const scope = textOf(params.scope)
    .split(' ')
    .filter((name) => known.includes(name) || isCapability(name))
  const resources = [params.resource].flat().map(textOf)
  for (const resource of resources) grant.addResourceScope(resource || service.url, scope.join(' '))
  return { grantId: await grant.save(), client: clientDigest(client.metadata()) }
}
