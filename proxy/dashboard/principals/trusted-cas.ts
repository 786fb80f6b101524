import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import {
  button,
  copyableCode,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  joinHtml,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'

const { agents, cas } = OPERATIONS

/** The CAs that vouch for an agent that is known by its SPIFFE id, and the form for another one. */
export async function trustedCasCard(
  { context }: DashboardContext,
  id: string,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  const { value } = await perform(agents.listTrustedCas, context, { params: { id } }, facts)
  const heading = html`<h2>CAs that vouch for it</h2>`
  if (value.own_bundle)
    return html`<section class="card">${heading}<p>Only those that its enrollment named. To replace them, deactivate it and enroll it again.</p></section>`
  const path = `${pathOf('agents', id)}/trusted-cas`
  const rows = value.cas.map(
    (ca) =>
      html`<tr><td>${ca.subject}</td><td>${relativeTime(ca.not_after, facts.at)}</td><td>${relativeTime(ca.trusted_at, facts.at)} by ${ca.trusted_by ?? 'somebody unknown'}</td><td>${copyableCode(ca.digest)}</td><td>${button(facts, 'admin.enroll', `${path}/${ca.digest}/withdraw`, 'Withdraw')}</td></tr>`,
  )
  const { value: attached } = await perform(cas.list, context, {}, facts)
  const others = attached.filter(
    ({ kind, digest }) => kind === 'spiffe' && value.cas.every((ca) => ca.digest !== digest),
  )
  return html`<section class="card">${heading}<p>An SVID with its SPIFFE id is this agent if it chains to one of these.</p>${dataTable(
    ['Subject', 'Ends', 'Since', 'Digest', ''],
    rows,
    html`<p>None: nobody can call as this agent.</p>`,
  )}${others.length === 0 || !hasCapability(facts, 'admin.enroll') ? EMPTY_HTML : trustForm(path, others, facts)}</section>`
}

const trustForm = (
  path: string,
  others: readonly { readonly digest: string; readonly subject: string }[],
  { session }: AdministrationFacts,
): HtmlFragment =>
  html`<form method="post" action="${path}">${csrf(session)}<label>Let another CA vouch for it <select name="digest">${joinHtml(
    others.map(
      ({ digest, subject }) => html`<option value="${digest}">${subject} (${digest.slice(0, 12)}…)</option>`,
    ),
  )}</select></label><p class="hint">Whoever holds the key of that CA can then call as this agent.</p><button>Vouch</button></form>`

/** POST /proxy/agents/{id}/trusted-cas, and …/{digest}/withdraw. */
export const trustedCasForms = (dashboard: DashboardContext) => {
  const to = ({ params }: FormSubmission): string => pathOf('agents', params.id ?? '')
  return {
    trust: formHandler(dashboard, agents.trustCa, {
      given: ({ params, form }) => ({
        params: { id: params.id ?? '' },
        body: { digest: form.get('digest') ?? '' },
      }),
      to,
      notice: 'trusted',
    }),
    distrust: formHandler(dashboard, agents.distrustCa, {
      given: ({ params }) => ({ params: { id: params.id ?? '', digest: params.digest ?? '' } }),
      to,
      notice: 'distrusted',
    }),
  }
}
