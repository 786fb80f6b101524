import { isObject } from '../../../db/support/json.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import type { OPERATIONS } from '../../admin/http/operations.ts'
import type { RawInput } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, forceReasonField, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import {
  capabilityTokens,
  countWithNoun,
  csrf,
  dataTable,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  type PageViewer,
  pathOf,
  problemList,
} from '../frame/parts.ts'
import { recordRequiredRehearsal } from '../rehearsed/acting-rehearsed.ts'
import { buttonOf, type ChangePreviewView, rehearsalOf } from '../rehearsed/rehearsal.ts'
import { typedTokens } from './capabilities-card.ts'
import { type CallerPlural, PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

type BulkInput = RawInput<typeof OPERATIONS.agents.changeFound.takes>['body']

const WAYS = { add: 'Add', remove: 'Remove', replace: 'Replace all by', set: 'Give the named set' } as const

/** The form under a list that was searched: it changes all that were found. */
export const bulkForm = (plural: CallerPlural, q: string, { session }: PageViewer): HtmlFragment =>
  html`<details class="enroll"><summary>Change all that this search finds</summary><form method="post" action="/proxy/${plural}/capabilities">${csrf(session)}<input type="hidden" name="q" value="${q}">
<label>How <select name="how">${Object.entries(WAYS).reduce((before, [value, name]) => html`${before}<option value="${value}">${name}</option>`, EMPTY_HTML)}</select></label>
<label>Capabilities, or the name of the set <input name="what" class="caps" data-tokens="caller" autocomplete="off" placeholder="llm.chat, mcp.tools.list"></label>
<p class="faint">The next page says who would be changed, and which calls of the last 30 days that would have refused. Nothing changes before.</p>
<button>Show what would change</button></form></details>`

const CALLER_TYPES = { agents: 'agent', users: 'user', workloads: 'workload' } as const

function changeIn({ form }: SubmittedForm): BulkInput {
  const [q = '', how = '', what = ''] = ['q', 'how', 'what'].map((name) => form.get(name) ?? '')
  if (how === 'set') return { q, set: what.trim() }
  return { q, ...(Object.hasOwn(WAYS, how) && { [how]: typedTokens(what) }) }
}

/** The states that a form was shown; null: it was shown none. Refuses with `body_unprocessable`. */
function shownEtags({ form }: SubmittedForm): Readonly<Record<string, string>> | null {
  const text = form.get('etags')
  if (text === undefined) return null
  try {
    const etags: unknown = JSON.parse(text)
    // Each member is parsed by the operation.
    if (isObject(etags)) return etags as Record<string, string>
  } catch {
    // Refused below.
  }
  throw unprocessableBody([{ field: 'etags', message: 'must be those of the page' }])
}

/** POST /proxy/{agents,users,workloads}/capabilities: shows the change of all that are found, then makes it. */
export const changeFoundForm =
  (plural: CallerPlural, dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const { operations } = PRINCIPAL_PAGES[plural]
    const { context } = dashboard
    const change = changeIn(facts)
    const etags = shownEtags(facts)
    if (etags === null) return showBulk(plural, dashboard, facts, change)
    try {
      const forced = facts.form.get('force_reason')
      const bulk = { ...change, type: CALLER_TYPES[plural] }
      const rehearsal = await recordRequiredRehearsal(dashboard, { changes: [], bulk }, facts)
      const asked = {
        ...{ query: {}, body: { ...change, etags } },
        ...(forced && { forced }),
        ...(rehearsal && { ifRehearsed: rehearsal }),
      }
      const done = await administerOnRecord(operations.changeFound, context, asked, facts)
      const notice = 'proposed' in done ? 'proposed' : 'updated'
      return seeOther(`/proxy/${plural}?${new URLSearchParams({ q: change.q, notice }).toString()}`)
    } catch (error) {
      if (error instanceof Refusal && SHOWN_AGAIN.has(error.reason))
        return showBulk(plural, dashboard, facts, change, error)
      throw error
    }
  }

const SHOWN_AGAIN: ReadonlySet<string> = new Set(['precondition_failed', 'expectation_broken'])

const MAX_SHOWN = 200

async function showBulk(
  plural: CallerPlural,
  dashboard: DashboardContext,
  facts: FormSubmission,
  change: BulkInput,
  refusal?: Refusal,
): Promise<Reply> {
  const { kind, operations } = PRINCIPAL_PAGES[plural]
  const asked = { query: { dry_run: 'true' as const }, body: change }
  const done = await administerOnRecord(operations.changeFound, dashboard.context, asked, facts)
  // Proven by `dry_run`: nothing waits, and there is a preview.
  const { value } = done as { readonly value: BulkResult }
  const { found, changed, principals, etags, rehearsal } = value
  const { form, path, session, at } = facts
  const kept = ['q', 'how', 'what'].reduce(
    (before, name) => html`${before}<input type="hidden" name="${name}" value="${form.get(name) ?? ''}">`,
    EMPTY_HTML,
  )
  const back = `/proxy/${plural}?${new URLSearchParams({ q: form.get('q') ?? '' }).toString()}`
  return frame(dashboard, facts, {
    title: `Change ${countWithNoun(changed, kind.type)}`,
    section: `/proxy/${plural}`,
    status: refusal?.status ?? 200,
    body: html`${refusal ? problemList(refusal) : EMPTY_HTML}<p>The search <code>${form.get('q') ?? ''}</code> finds ${countWithNoun(found, kind.type)}; ${countWithNoun(changed, kind.type)} would hold something else. All are changed at once, or none.</p>
${changed === 0 ? EMPTY_HTML : rehearsalOf(rehearsal, at)}
${changed > 0 && html`<form method="post" action="${path}">${csrf(session)}${kept}<input type="hidden" name="etags" value="${JSON.stringify(etags)}">${refusal?.reason === 'expectation_broken' && forceReasonField()}<button class="danger">${buttonOf(rehearsal, `Change ${countWithNoun(changed, kind.type)}`)}</button></form>`}
<p><a href="${back}">Leave it as it is</a></p>
${dataTable(
  ['Who', 'Holds', 'Would hold'],
  principals
    .slice(0, MAX_SHOWN)
    .map(
      (one) =>
        html`<tr><td>${one.principal_id}</td><td>${capabilityTokens(one.previous)}</td><td>${capabilityTokens(one.capabilities)}</td></tr>`,
    ),
  html`<p>Nobody would hold anything else.</p>`,
)}
${changed > MAX_SHOWN && html`<p class="faint">and ${String(changed - MAX_SHOWN)} more</p>`}`,
  })
}

type BulkResult = Awaited<ReturnType<typeof OPERATIONS.agents.changeFound.run>>['value'] & {
  readonly rehearsal: ChangePreviewView
}

/** POST /proxy/{kind}/{id}/labels: replaces the labels by those of the field, `team=red, env=prod`. */
export const labelsForm = (plural: PrincipalPlural, dashboard: DashboardContext) =>
  formHandler(dashboard, PRINCIPAL_PAGES[plural].operations.setLabels, {
    given: (facts) => ({
      ...inputById(facts),
      body: {
        labels: Object.fromEntries(
          typedTokens(facts.form.get('labels') ?? '').map((label) => {
            const [key = '', ...value] = label.split('=')
            return [key, value.join('=')]
          }),
        ),
      },
    }),
    to: ({ params }) => pathOf(plural, params.id ?? ''),
    notice: 'updated',
  })
