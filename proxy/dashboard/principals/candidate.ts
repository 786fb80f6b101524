import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import { showCandidateSet } from '../../admin/rehearsals/candidates.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import type { DashboardPage } from '../frame/frame.ts'
import {
  button,
  capabilityTokens,
  countWithNoun,
  EMPTY_HTML,
  type HtmlFragment,
  html,
  pathOf,
  relativeTime,
} from '../frame/parts.ts'
import { pile } from '../rehearsed/rehearsal.ts'
import { type CallerPlural, PRINCIPAL_PAGES, type PrincipalDetail, readPrincipalDetail } from './kinds.ts'

export async function candidateCard(
  { context }: DashboardContext,
  plural: CallerPlural,
  { id }: PrincipalDetail,
  facts: AdministrationFacts,
): Promise<HtmlFragment> {
  const show = showCandidateSet(PRINCIPAL_PAGES[plural].kind)
  const { value: set } = await perform(show, context, { params: { id } }, facts)
  if (set === null) return EMPTY_HTML
  const page = `${pathOf(plural, id)}/candidate`
  return html`<section class="card" id="candidate" data-load="${page}">${headOf(set, facts)}<p><a href="${page}">What it would have changed, and how to make it the real one</a></p></section>`
}

type ShownCandidate = NonNullable<OperationResult<{ capabilities: string[]; since: string }>['value']>

const headOf = (
  { capabilities, since }: ShownCandidate,
  { at }: Pick<AdministrationFacts, 'at'>,
): HtmlFragment =>
  html`<h2>Tried alongside the real set</h2><p>${capabilityTokens(capabilities)} <span class="faint">since ${relativeTime(since, at)}; it decides nothing</span></p>`

/** GET /proxy/{kind}/{id}/candidate: the changes that a set would have made since it is tried. */
export const candidatePage =
  (plural: CallerPlural): DashboardPage =>
  async (dashboard, facts) => {
    const one = await readPrincipalDetail(dashboard, plural, facts.params.id ?? '', facts)
    const { context } = dashboard
    const given = { params: { id: one.id } }
    const back = html`<p><a href="${pathOf(plural, one.id)}">Back</a></p>`
    const show = showCandidateSet(PRINCIPAL_PAGES[plural].kind)
    const { value: set } = await perform(show, context, given, facts)
    const body =
      set === null
        ? html`<section class="card" id="candidate"><p>No other set is tried alongside the real one.</p></section>`
        : watchedCard(
            pathOf(plural, one.id),
            await perform(PRINCIPAL_PAGES[plural].operations.getCandidate, context, given, facts),
            facts,
          )
    const title = `Tried alongside the set of ${one.value.display_name || one.value.name}`
    return { title, section: `/proxy/${plural}`, body: html`${body}${back}` }
  }

type CandidateResult = Awaited<
  ReturnType<(typeof PRINCIPAL_PAGES)['agents']['operations']['getCandidate']['run']>
>

function watchedCard(
  path: string,
  { value, revision = 0 }: CandidateResult,
  facts: AdministrationFacts,
): HtmlFragment {
  const { decisions, would_refuse: refuse, would_allow: allow } = value
  const [refused, allowed] = [callsIn(refuse), callsIn(allow)]
  const fields = { if_match: `"${revision}"` }
  const promote =
    refused > 0 ? `Promote: ${countWithNoun(refused, 'call')} since then would have been refused` : 'Promote'
  return html`<section class="card" id="candidate">${headOf(value, facts)}
<p>It has judged ${countWithNoun(decisions, 'call')}.${decisions > 0 && refused + allowed === 0 && html` None would have been decided otherwise.`}</p>
${refused > 0 && pile('refused', `${countWithNoun(refused, 'call')} would have been refused`, refuse, facts.at)}
${allowed > 0 && pile('allowed', `${countWithNoun(allowed, 'call')} would have passed the gate`, allow, facts.at)}
<p>${button(facts, 'admin.grant', `${path}/candidate/promote`, promote, fields)} ${button(facts, 'admin.grant', `${path}/candidate/remove`, 'Remove', fields)}</p></section>`
}

const callsIn = (groups: CandidateResult['value']['would_refuse']): number =>
  groups.reduce((sum, { decisions }) => sum + decisions, 0)
