import type { UpstreamAccount } from '../../../db/mcp/accounts.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { resourcesOfAccounts } from '../../admin/mcp/connectable.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { EMPTY_HTML, type HtmlFragment, html } from '../../operators/pages/html.ts'
import { redirectPage } from '../../operators/pages/page.ts'
import { requireFormToken } from './consent.ts'
import type { PeopleSignIn } from './sign-in.ts'
import { requireAccount } from './signed-in.ts'

interface AccountsPart {
  readonly token: string
  readonly at: number
}

/** Renders one's accounts at MCP servers, and where one may be connected. Nothing if there are neither. */
export async function ownAccounts(
  { context }: PeopleSignIn,
  user: PrincipalRecord,
  { token, at }: AccountsPart,
): Promise<HtmlFragment> {
  if (!context.accounts) return EMPTY_HTML
  const { accounts, links } = context.accounts
  const { principal_id: id } = user
  const principal = { id, type: 'user' as const }
  const own = await accounts.listOf(principal)
  const servers = await resourcesOfAccounts(context, user)
  const open = servers.filter((one) => !own.some(({ resourceId }) => resourceId === one.resource_id))
  const names = new Map(servers.map((one) => [one.resource_id, one.name]))
  const linkTo = (resourceId: string): string =>
    `/connect/${links.seal({ principal, resourceId, scopes: [] }, at)}`
  if (own.length === 0 && open.length === 0) return EMPTY_HTML
  return html`<h2>Your accounts at servers</h2>${own.map((one) => accountForm(one, names, { token, linkTo }))}${open.map((one) => openServer(one, linkTo))}`
}

const accountForm = (
  { id, resourceId, issuer, scopes, connectedAt }: UpstreamAccount,
  names: ReadonlyMap<string, string>,
  { token, linkTo }: { readonly token: string; readonly linkTo: (resourceId: string) => string },
): HtmlFragment => html`<form method="post" action="/account/accounts/end"><dl><dt>Server</dt><dd>${names.get(resourceId) ?? 'one that you may not call now'}</dd>
<dt>Signed in at</dt><dd>${issuer}</dd>
<dt>It may</dt><dd>${scopes.length === 0 ? 'what the server gives by itself' : scopes.join(', ')}</dd>
<dt>Since</dt><dd>${new Date(connectedAt).toISOString()}</dd></dl>
<input type="hidden" name="token" value="${token}"><button name="account" value="${id}">End</button>${names.has(resourceId) && html` <a href="${linkTo(resourceId)}">Connect another one</a>`}</form>`

const openServer = (
  { name, resource_id: id }: McpResource,
  linkTo: (resourceId: string) => string,
): HtmlFragment =>
  html`<p><strong>${name}</strong>: no account is connected. <a href="${linkTo(id)}">Connect one</a></p>`

/** POST /account/accounts/end: ends one's own account, from the next call on. */
export const endOwnAccount =
  (signing: PeopleSignIn) =>
  (arrival: Arrival & SubmittedForm): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const { user, session } = await requireAccount(signing, library, arrival)
      requireFormToken(signing.key, `account ${session.uid}`, arrival.form.get('token'))
      const { accounts } = signing.context.accounts ?? {}
      const one = await accounts?.findById(arrival.form.get('account') ?? '')
      const isOwn = one?.holder.type === 'user' && one.holder.id === user.principal_id
      if (!accounts || !isOwn) throw notFound('This account is not connected any more.')
      await accounts.end(one, 'person', { ref: user.principal_ref, type: 'user' })
      return redirectPage('/account')
    })
