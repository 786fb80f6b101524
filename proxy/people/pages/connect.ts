import { findMcpResource } from '../../../db/mcp/resources.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { cookieOf, setCookie } from '../../../plugins/operators/sessions.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { notFound, Refusal } from '../../../plugins/refusal.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import { type ConnectableAccount, connectableFor } from '../../admin/mcp/connectable.ts'
import type { Reply } from '../../http/reply.ts'
import {
  ACCOUNT_COOKIE,
  type AccountBeginning,
  ConnectRefused,
  IssuerUnavailable,
  NotBegun,
} from '../../mcp/accounts/accounts.ts'
import type { AccountDesk, ConnectingOperator } from '../../mcp/accounts/consent-links.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { EMPTY_HTML, type HtmlFragment, html } from '../../operators/pages/html.ts'
import { plainPage, redirectPage } from '../../operators/pages/page.ts'
import { formTokenOf, requireFormToken } from './consent.ts'
import { beginSignIn, type PeopleSignIn } from './sign-in.ts'
import { findSignedIn, type SignedInAccount } from './signed-in.ts'

const OPERATOR_COOKIE = '__Host-account-operator'
const OPERATOR_PURPOSE = Buffer.from('account operator')
/** The time that an issuer's pages may take. ms. */
const OPERATOR_MS = 900_000

/** Refuses alike what is nobody's and what is somebody else's. */
const noSuchLink = (): Refusal =>
  notFound('This link is over, or is not for you. Call the tool again for a new one.')

export function deskOf({ context }: Pick<PeopleSignIn, 'context'>): AccountDesk {
  if (!context.accounts) throw notFound('There are no accounts here.')
  return context.accounts
}

interface OwnConnection {
  readonly to: ConnectableAccount
  readonly user: PrincipalRecord
  /** Names the page of this browser's session. */
  readonly page: string
}

async function ownConnection(
  signing: PeopleSignIn,
  arrival: Arrival,
  { user, session }: SignedInAccount,
): Promise<OwnConnection> {
  const { id = '' } = arrival.params
  const request = deskOf(signing).links.open(id, arrival.at)
  const isOwn = request?.principal.type === 'user' && request.principal.id === user.principal_id
  const to = isOwn ? await connectableFor(signing.context, request) : null
  if (!to) throw noSuchLink()
  return { to, user, page: `connect ${session.uid} ${id}` }
}

/** GET /connect/{id}: says where an account is to be connected, and asks. Works for its own user alone. */
export const connectPage =
  (signing: PeopleSignIn) =>
  (arrival: Arrival): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const { id = '' } = arrival.params
      if (!deskOf(signing).links.open(id, arrival.at)) throw noSuchLink()
      const found = await findSignedIn(signing, library, arrival)
      if (!found) return beginSignIn(signing, arrival, `/connect/${id}`)
      const { to, user, page } = await ownConnection(signing, arrival, found)
      const whose = html`<p>You are signed in as <strong>${user.name}</strong>. Calls in your name will use this account, and nobody else's will.</p>`
      return questionPage(signing, to, { path: `/connect/${id}`, page, whose })
    })

/** POST /connect/{id}: sends the browser of that user to the issuer. */
export const beginConnecting =
  (signing: PeopleSignIn) =>
  (arrival: Arrival & SubmittedForm): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const found = await findSignedIn(signing, library, arrival)
      if (!found) throw new Refusal('signed_out')
      const { to, user, page } = await ownConnection(signing, arrival, found)
      requireFormToken(signing.key, page, arrival.form.get('token'))
      return begun(signing, to, { person: user.principal_id, returnTo: '/account', at: arrival.at }, GONE)
    })

const GONE = setCookie(OPERATOR_COOKIE, '', 'Lax', 0)

interface HandedConnection {
  readonly to: ConnectableAccount
  readonly operator: ConnectingOperator
  readonly page: string
}

async function handedConnection(signing: PeopleSignIn, arrival: Arrival): Promise<HandedConnection> {
  const { ticket = '' } = arrival.params
  const handed = deskOf(signing).links.openHandOver(ticket, arrival.at)
  const to = handed && (await connectableFor(signing.context, handed.request))
  if (!handed || !to) throw noSuchLink()
  return { to, operator: handed.operator, page: `connect as ${ticket}` }
}

/** GET /connect/as/{ticket}: the same for an agent or a workload, by the operator whom the dashboard has sent. */
export const connectForPage =
  (signing: PeopleSignIn) =>
  async (arrival: Arrival): Promise<Reply> => {
    const { to, operator, page } = await handedConnection(signing, arrival)
    const whose = html`<p>The operator <strong>${operator.ref}</strong> connects it for <strong>${to.holder.id}</strong>. Whoever signs in on the next page lets it act with that account.</p>`
    return questionPage(signing, to, { path: `/connect/as/${arrival.params.ticket ?? ''}`, page, whose })
  }

/** POST /connect/as/{ticket}: sends the operator's browser to the issuer. */
export const beginConnectingFor =
  (signing: PeopleSignIn) =>
  async (arrival: Arrival & SubmittedForm): Promise<Reply> => {
    const { to, operator, page } = await handedConnection(signing, arrival)
    requireFormToken(signing.key, page, arrival.form.get('token'))
    const until = arrival.at + OPERATOR_MS
    const sealed = sealBytes(signing.key, JSON.stringify([operator.ref, until]), OPERATOR_PURPOSE)
    const cookie = setCookie(OPERATOR_COOKIE, sealed.toString('base64url'), 'Lax', OPERATOR_MS / 1_000)
    return begun(signing, to, { person: operator.ref, returnTo: '/account', at: arrival.at }, cookie)
  }

/** Finds the operator whose browser began, if it still may. Those that no table has began with the secret. */
async function operatorIn(
  { key, context }: PeopleSignIn,
  { headers, at }: Arrival,
): Promise<ConnectingOperator | null> {
  const given = cookieOf(headers, OPERATOR_COOKIE)
  if (given === null) return null
  try {
    const text = openSealed(key, Buffer.from(given, 'base64url'), OPERATOR_PURPOSE).toString()
    // Proven by the seal: only the function above writes it.
    const [ref, until] = JSON.parse(text) as readonly [string, number]
    const operator = await findPrincipal(context.database, 'operator', ref)
    const may = !operator || (operator.is_active && operator.capabilities.includes('admin.enroll'))
    return may && at < until ? { ref } : null
  } catch {
    return null
  }
}

interface ConnectQuestion {
  readonly path: string
  readonly page: string
  readonly whose: HtmlFragment
}

async function questionPage(
  signing: PeopleSignIn,
  { resource, holder, scopes }: ConnectableAccount,
  { path, page, whose }: ConnectQuestion,
): Promise<Reply> {
  const { accounts } = deskOf(signing)
  return explained(async () => {
    const { issuer } = await accounts.issuerOf(resource)
    const before = await accounts.find(holder, resource)
    const asked = scopes.length > 0 ? scopes : (resource.oauth?.scopes ?? [])
    return plainPage({
      title: 'Connect an account?',
      body: html`<p>Tools of <strong>${resource.name}</strong> need an account there.</p>
<dl><dt>Server</dt><dd>${new URL(resource.endpoint_url).origin}</dd>
<dt>You will sign in at</dt><dd>${issuer}</dd>
<dt>It will be asked for</dt><dd>${asked.length === 0 ? 'what it gives by itself' : asked.join(', ')}</dd></dl>${whose}
${before ? html`<p>This replaces the account that is connected now.</p>` : EMPTY_HTML}<p><strong>Go on only if you called a tool just now and expected this.</strong></p>
<form method="post" action="${path}"><input type="hidden" name="token" value="${formTokenOf(signing.key, page)}"><button>Sign in at ${new URL(issuer).host}</button></form>`,
    })
  })
}

type BeginningPerson = Pick<AccountBeginning, 'person' | 'returnTo' | 'at'>

const begun = (
  signing: PeopleSignIn,
  { holder, resource, scopes }: ConnectableAccount,
  person: BeginningPerson,
  operator: string,
): Promise<Reply> =>
  explained(async () => {
    const { accounts } = deskOf(signing)
    const { location, cookie } = await accounts.begin({ holder, resource, scopes, ...person })
    // Not a redirect: `form-action` would stop it.
    return { ...redirectPage(location), cookies: [cookie, operator] }
  })

/** GET /oauth/account/callback: takes the issuer's answer, for the browser and the person that began. */
export const finishConnecting =
  (signing: PeopleSignIn) =>
  async (arrival: Arrival): Promise<Reply> => {
    const operator = await operatorIn(signing, arrival)
    const user = operator ? null : await signedInUser(signing, arrival)
    const person = operator?.ref ?? user?.principal_id
    if (person === undefined) throw new Refusal('sign_in_not_begun')
    const by = user
      ? { ref: user.principal_ref, type: 'user' as const }
      : { ref: person, type: 'operator' as const }
    return explained(async () => {
      const { accounts, announce } = deskOf(signing)
      const { account } = await accounts.finish({
        ...{ query: arrival.query, headers: { cookie: arrival.headers.cookie }, person, by },
        resourceOf: (id) => findMcpResource(signing.context.database, id),
        ...{ requestId: arrival.id, at: arrival.at },
      })
      const resource = await findMcpResource(signing.context.database, account.resourceId)
      if (resource?.oauth?.reader === account.holder.ref) announce(account.resourceId)
      return {
        ...plainPage({
          title: 'Connected',
          body: html`<p>The account at <strong>${resource?.name ?? 'the server'}</strong> is connected. Go back to your program, and call the tool again.</p>${user ? html`<p><a href="/account">Your programs and accounts</a></p>` : EMPTY_HTML}`,
        }),
        cookies: [GONE, setCookie(ACCOUNT_COOKIE, '', 'Lax', 0)],
      }
    })
  }

async function signedInUser(signing: PeopleSignIn, arrival: Arrival): Promise<PrincipalRecord | null> {
  let user: PrincipalRecord | null = null
  await signing.service.perform(arrival, async (library) => {
    user = (await findSignedIn(signing, library, arrival))?.user ?? null
    return NOTHING
  })
  return user
}

const NOTHING: Reply = { status: 204 }

/** Answers what the issuer's side has spoiled with a page that says so. */
async function explained(work: () => Promise<Reply>): Promise<Reply> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof NotBegun) throw new Refusal('sign_in_not_begun', { cause: error })
    if (error instanceof ConnectRefused)
      return sorryPage(403, `The sign-in there was refused: ${error.message}`)
    if (error instanceof IssuerUnavailable) return sorryPage(503, error.message)
    throw error
  }
}

const sorryPage = (status: number, words: string): Reply =>
  plainPage({
    status,
    title: 'No account was connected',
    body: html`<p>${words}</p><p>Call the tool again for a new link.</p>`,
  })
