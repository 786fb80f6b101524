import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { capabilityToEnroll } from '../../admin/operation/kinds.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { forceReasonField, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import { frame } from '../frame/frame.ts'
import {
  csrf,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  problemList,
} from '../frame/parts.ts'
import { askFirst } from '../rehearsed/acting-rehearsed.ts'
import { type CallerPlural, PRINCIPAL_PAGES, type PrincipalDetail, readPrincipalDetail } from './kinds.ts'

/** GET /proxy/{kind}/{id}/erase: what an erasure destroys and keeps, before anybody asks for it. */
export const erasePage =
  (plural: CallerPlural): DashboardPage =>
  async (dashboard, facts) => {
    const one = await readPrincipalDetail(dashboard, plural, facts.params.id ?? '', facts)
    return { title: titleOf(one), section: `/proxy/${plural}`, body: bodyOf(plural, one, facts, EMPTY_INPUT) }
  }

/** POST of the same path: does it, once its name was typed. */
export const eraseForm =
  (plural: CallerPlural, dashboard: DashboardContext) =>
  async (facts: AdministrationFacts & SubmittedForm): Promise<Reply> => {
    const { id = '' } = facts.params
    const typed = facts.form.get('name') ?? ''
    const one = await readPrincipalDetail(dashboard, plural, id, facts)
    try {
      if (typed !== one.value.name)
        throw unprocessableBody([{ field: 'name', message: `is not the name: ${one.value.name}` }])
      const forced = facts.form.get('force_reason')
      const asked = { ...inputById(facts), ...(forced && { forced }) }
      const { erase } = PRINCIPAL_PAGES[plural].operations
      const label = `Erase ${one.value.name} for good`
      const shown = await askFirst(dashboard, erase, inputById(facts), facts, { title: titleOf(one), label })
      if (shown) return shown
      const done = await administerOnRecord(erase, dashboard.context, asked, facts)
      return seeOther(`/proxy/${plural}?notice=${'proposed' in done ? 'proposed' : 'erased'}`)
    } catch (error) {
      if (!(error instanceof Refusal) || !AGAIN.has(error.reason)) throw error
      const isStale = error.reason === 'precondition_failed'
      const ifMatch = isStale ? undefined : facts.form.get('if_match')
      const body = bodyOf(plural, one, facts, { name: typed, ifMatch, refusal: error })
      const shown = { title: titleOf(one), section: `/proxy/${plural}`, status: error.status, body }
      return frame(dashboard, facts, shown)
    }
  }

const AGAIN: ReadonlySet<string> = new Set([
  'body_unprocessable',
  'precondition_failed',
  'expectation_broken',
])

const titleOf = ({ value }: PrincipalDetail): string => `Erase ${value.display_name || value.name}`

/** The operation's effects (docs/ledger.md#erasure), in the words of its operator. */
const DESTROYED = [
  'its certificates and proof keys, and with them every way to call',
  'its API keys and its bindings to MCP servers',
  'the key of its commitments: nobody can open what its calls said any more',
]

const [WHOLE, KEPT] = [
  ['the user itself: its id and its names', ...DESTROYED],
  ['its display name, its capabilities, and the set that is tried alongside them', ...DESTROYED],
]

function keptRecords(plural: CallerPlural): readonly string[] {
  const ledger =
    plural === 'users'
      ? 'the rows of the ledger, which contain only its pseudonym'
      : 'its name and its entry, which is inactive, and the rows of the ledger about it'
  return [ledger, 'what is in log files, backups and earlier exports: you must find those yourself']
}

interface EraseInput {
  readonly name: string
  readonly ifMatch: string | undefined
  readonly refusal: Refusal | null
}

const EMPTY_INPUT: EraseInput = { name: '', ifMatch: undefined, refusal: null }

function bodyOf(
  plural: CallerPlural,
  { id, value, revision }: PrincipalDetail,
  facts: AdministrationFacts,
  { name, ifMatch, refusal }: EraseInput,
): HtmlFragment {
  const needs = capabilityToEnroll(PRINCIPAL_PAGES[plural].kind)
  const list = (texts: readonly string[]): HtmlFragment =>
    html`<ul>${texts.map((text) => html`<li>${text}</li>`)}</ul>`
  const form = html`<form method="post" action="${pathOf(plural, id)}/erase">${csrf(facts.session)}<input type="hidden" name="if_match" value="${ifMatch ?? `"${revision}"`}">
<label>Type its name, <code>${value.name}</code>, to erase it <input name="name" required maxlength="64" autocomplete="off" value="${name}"${refusal?.reason === 'body_unprocessable' ? html` aria-invalid="true"` : EMPTY_HTML}></label>
${refusal?.reason === 'expectation_broken' ? forceReasonField() : EMPTY_HTML}<button class="danger">Erase ${value.name} for good</button></form>`
  return html`${refusal ? problemList(refusal) : EMPTY_HTML}<section class="card"><h2>What is destroyed, for good</h2>${list(plural === 'users' ? WHOLE : KEPT)}
<h2>What stays</h2>${list(keptRecords(plural))}
${hasCapability(facts, needs) ? form : html`<p class="needs">Erasing needs <code>${needs}</code></p>`}
<p><a href="${pathOf(plural, id)}">Leave it as it is</a></p></section>`
}
