import { findGrant, grantsOf, type PeopleGrant, removeGrants } from '../../../db/people/grants.ts'
import { removeGrantStates } from '../../../db/people/states.ts'
import { grantEndedNote } from '../../../plugins/people/rows.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { notFound } from '../../../plugins/refusal.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { html } from '../../operators/pages/html.ts'
import { plainPage, redirectPage } from '../../operators/pages/page.ts'
import { rowOf } from '../oauth/issue.ts'
import { PEOPLE_COOKIES } from '../oauth/provider.ts'
import { currentUnit } from '../oauth/unit.ts'
import { formTokenOf, requireFormToken } from './consent.ts'
import { ownAccounts } from './own-accounts.ts'
import { beginSignIn, type PeopleSignIn } from './sign-in.ts'
import { findSignedIn, requireAccount } from './signed-in.ts'

/** GET /account: the programs that may call in one's name, and one's accounts at MCP servers. Has whoever is not signed in sign in first. */
export const accountPage =
  (signing: PeopleSignIn) =>
  (arrival: Arrival): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const found = await findSignedIn(signing, library, arrival)
      if (!found) return beginSignIn(signing, arrival, '/account')
      const { user, session } = found
      const held = await grantsOf(signing.context.database, user.principal_id)
      const token = formTokenOf(signing.key, `account ${session.uid}`)
      const grants = held.filter(({ expiresAt }) => expiresAt > arrival.at)
      return plainPage({
        title: 'Your programs and accounts',
        body: html`<p>Signed in as <strong>${user.name}</strong>.</p>
${grants.length === 0 ? html`<p>No program may call in your name.</p>` : html`<p>These programs may call in your name:</p>`}${grants.map((grant) => grantForm(grant, token))}${await ownAccounts(signing, user, { token, at: arrival.at })}
<form method="post" action="/account/sign-out"><input type="hidden" name="token" value="${token}"><button>Sign out</button></form>`,
      })
    })

const grantForm = (
  { id, client, bound, scope, issuedAt, expiresAt }: PeopleGrant,
  token: string,
) => html`<form method="post" action="/account/end"><dl><dt>Program</dt><dd>${client.host}</dd>
<dt>Its calls</dt><dd>${bound === 'key' ? 'are proven by its key' : 'are by whoever has its token'}</dd>
<dt>It reaches</dt><dd>${scope === null ? 'all that you hold' : scope.join(', ')}</dd>
<dt>From, until</dt><dd>${new Date(issuedAt).toISOString()}, ${new Date(expiresAt).toISOString()}</dd></dl>
<input type="hidden" name="token" value="${token}"><button name="grant" value="${id}">End</button></form>`

/** POST /account/end: ends one's own grant. Its tokens count for no call from then on. */
export const endOwnGrant =
  (signing: PeopleSignIn) =>
  (arrival: Arrival & SubmittedForm): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const { user, session } = await requireAccount(signing, library, arrival)
      requireFormToken(signing.key, `account ${session.uid}`, arrival.form.get('token'))
      const { database, configDigest } = signing.context
      const grant = await findGrant(database, arrival.form.get('grant') ?? '')
      if (grant?.principalId !== user.principal_id) throw notFound('This program may not call any more.')
      const unit = currentUnit()
      unit.write(removeGrants(database, [grant.id]), removeGrantStates(database, [grant.id]))
      unit.record(rowOf(grantEndedNote(grant, user.principal_ref, 'person'), user, configDigest))
      return redirectPage('/account')
    })

/** POST /account/sign-out: ends the session of this browser, and no grant. */
export const signOutAccount =
  (signing: PeopleSignIn) =>
  (arrival: Arrival & SubmittedForm): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const { session } = await requireAccount(signing, library, arrival)
      requireFormToken(signing.key, `account ${session.uid}`, arrival.form.get('token'))
      await session.destroy()
      const gone = `${PEOPLE_COOKIES.session}=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0`
      return {
        ...plainPage({
          title: 'Signed out',
          body: html`<p><a class="button" href="/account">Sign in</a></p>`,
        }),
        cookies: [gone],
      }
    })
