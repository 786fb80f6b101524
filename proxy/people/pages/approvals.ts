import {
  approvalDetail,
  decideApproval,
  findApproval,
  type StoredApproval,
} from '../../../db/mcp/approvals.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { notFound, Refusal } from '../../../plugins/refusal.ts'
import {
  approvalReason,
  type DecidedStatus,
  requireOpen,
  viewApproval,
} from '../../admin/approvals/operations.ts'
import type { Reply } from '../../http/reply.ts'
import { renderArguments } from '../../operators/pages/call-arguments.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { EMPTY_HTML, html } from '../../operators/pages/html.ts'
import { plainPage, redirectPage } from '../../operators/pages/page.ts'
import { rowOf } from '../oauth/issue.ts'
import { currentUnit } from '../oauth/unit.ts'
import { formTokenOf, requireFormToken } from './consent.ts'
import { beginSignIn, type PeopleSignIn } from './sign-in.ts'
import { findSignedIn, requireAccount, type SignedInAccount } from './signed-in.ts'

const pathOf = (id: string): string => `/account/approvals/${id}`

/** Finds a call of this person that they may approve. For anybody else there is none. */
async function ownCall(
  { context }: PeopleSignIn,
  { user }: Pick<SignedInAccount, 'user'>,
  id: string | undefined,
): Promise<StoredApproval> {
  const found = await findApproval(context.database, id ?? '')
  if (found?.principal_ref !== user.principal_ref || found.approver !== 'person')
    throw notFound('There is no such call of yours that waits for you.')
  return found
}

// The form is of this session and this call.
const formOf = ({ session }: SignedInAccount, id: string): string => `approval ${session.uid} ${id}`

/** GET /account/approvals/{id}: one's own call with all of its arguments. Has whoever is not signed in sign in first. */
export const ownApprovalPage =
  (signing: PeopleSignIn) =>
  (arrival: Arrival): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const account = await findSignedIn(signing, library, arrival)
      if (!account) return beginSignIn(signing, arrival, arrival.path)
      const found = await ownCall(signing, account, arrival.params.id)
      const one = await viewApproval(signing.context, found, arrival.at)
      return plainPage({
        title: 'Let this call pass?',
        body: callPage(one, formTokenOf(signing.key, formOf(account, found.approval_id))),
      })
    })

function callPage(one: Awaited<ReturnType<typeof viewApproval>>, token: string) {
  const { id, status, arguments: args, definition } = one
  const description = definition && typeof definition.description === 'string' ? definition.description : null
  const hidden = html`<input type="hidden" name="token" value="${token}">`
  const decide = html`<form method="post" action="${pathOf(id)}">${hidden}<button name="decision" value="approved">Let exactly this call pass, once</button></form>
<form method="post" action="${pathOf(id)}">${hidden}<label>Why not: the program reads it <input name="reason" maxlength="500" autocomplete="off"></label><button name="decision" value="declined">Decline it</button></form>`
  return html`<dl><dt>Tool</dt><dd>${one.resource}.${one.tool}</dd>
<dt>Program, in its own words</dt><dd>${one.client ?? 'nothing'}</dd>
<dt>Asked</dt><dd>${one.created_at}</dd><dt>Until</dt><dd>${one.expires_at}</dd>
<dt>State</dt><dd>${status === 'open' ? 'it waits for you' : status}</dd></dl>
${args === null ? EMPTY_HTML : html`<h2>All of its arguments</h2>${renderArguments(args)}`}
${description === null ? EMPTY_HTML : html`<h2>What the tool says of itself</h2>${renderArguments(description)}`}
${status === 'open' ? decide : html`<p>Nothing is left to decide. If the call is sent again, it may ask again.</p>`}
<p><a href="/account">Your programs</a></p>`
}

/** POST /account/approvals/{id}: takes the person's decision about their own call. */
export const decideOwnCall =
  (signing: PeopleSignIn) =>
  (arrival: Arrival & SubmittedForm): Promise<Reply> =>
    signing.service.perform(arrival, async (library) => {
      const account = await requireAccount(signing, library, arrival)
      const found = await ownCall(signing, account, arrival.params.id)
      const { form, at } = arrival
      requireFormToken(signing.key, formOf(account, found.approval_id), form.get('token'))
      requireOpen(found, at)
      decide(signing, account, found, {
        status: form.get('decision') === 'approved' ? 'approved' : 'declined',
        reason: form.get('reason')?.trim() || null,
      })
      return redirectPage(pathOf(found.approval_id))
    })

interface OwnDecision {
  readonly status: DecidedStatus
  readonly reason: string | null
}

function decide(
  { context }: PeopleSignIn,
  { user }: SignedInAccount,
  found: StoredApproval,
  { status, reason }: OwnDecision,
): void {
  if (reason !== null && !approvalReason.safeParse(reason).success)
    throw new Refusal('body_invalid', {
      message: 'The reason must be at most 500 characters, and none that hide.',
    })
  const { database, configDigest } = context
  const unit = currentUnit()
  const detail = { ...approvalDetail(found), via: 'oidc', ...(reason !== null && { reason }) }
  const { approval_id: id } = found
  const { at } = unit.arrival
  unit.write(decideApproval(database, { id, status, by: user.principal_ref, via: 'oidc', reason, at }))
  unit.record(rowOf({ action: `approval.${status}`, detail }, user, configDigest))
}
