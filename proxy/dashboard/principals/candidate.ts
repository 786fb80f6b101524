import type { Administered } from '../../../plugins/operators/operator.ts'
import { perform, type Result } from '../../admin/operation/operation.ts'
import { showCandidateSet } from '../../admin/rehearsals/candidates.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import type { Page } from '../frame/page.ts'
import { ago, button, counted, type Html, html, NOTHING, pathOf, tokens, when } from '../frame/parts.ts'
import { pile } from '../rehearsed/rehearsal.ts'
import { type Detailed, detailOf } from './detailed.ts'
import { PAGES, type Plural } from './kinds.ts'

/** The kinds whose calls a set can be tried on. */
export type Callers = Exclude<Plural, 'operators'>

/** The card of the set that is tried beside the real one: what it would have changed is loaded behind the page. */
export async function candidateCard(
  { context }: Dashboard,
  plural: Callers,
  { id }: Detailed,
  facts: Administered,
): Promise<Html> {
  const show = showCandidateSet(PAGES[plural].kind)
  const { value: set } = await perform(show, context, { params: { id } }, facts)
  if (set === null) return NOTHING
  const page = `${pathOf(plural, id)}/candidate`
  return html`<section class="card" id="candidate" data-load="${page}">${headOf(set, facts)}<p><a href="${page}">What it would have changed, and how to make it the real one</a></p></section>`
}

type Set = NonNullable<Result<{ capabilities: string[]; since: string }>['value']>

const headOf = ({ capabilities, since }: Set, { at }: Pick<Administered, 'at'>): Html =>
  html`<h2>Tried beside the real set</h2><p>${tokens(capabilities)} <span class="faint">since ${ago(since, at)}; it decides nothing</span></p>`

/** GET /proxy/{kind}/{id}/candidate: what a set would have changed since it is tried. */
export const candidatePage =
  (plural: Callers): Page =>
  async (dashboard, facts) => {
    const one = await detailOf(dashboard, plural, facts.params.id ?? '', facts)
    const { context } = dashboard
    const given = { params: { id: one.id } }
    const back = html`<p><a href="${pathOf(plural, one.id)}">Back</a></p>`
    const { value: set } = await perform(showCandidateSet(PAGES[plural].kind), context, given, facts)
    const body =
      set === null
        ? html`<section class="card" id="candidate"><p>No other set is tried beside the real one.</p></section>`
        : watchedCard(
            pathOf(plural, one.id),
            await perform(PAGES[plural].operations.getCandidate, context, given, facts),
            facts,
          )
    const title = `Tried beside the set of ${one.value.display_name || one.value.name}`
    return { title, section: `/proxy/${plural}`, body: html`${body}${back}` }
  }

type Watched = Awaited<ReturnType<(typeof PAGES)['agents']['operations']['getCandidate']['run']>>

function watchedCard(path: string, { value, revision = 0 }: Watched, facts: Administered): Html {
  const { decisions, would_refuse: refuse, would_allow: allow } = value
  const [refused, allowed] = [callsIn(refuse), callsIn(allow)]
  const fields = { if_match: `"${revision}"` }
  const promote =
    refused > 0 ? `Promote: ${counted(refused, 'call')} since then would have been refused` : 'Promote'
  return html`<section class="card" id="candidate">${headOf(value, facts)}
<p>It has judged ${counted(decisions, 'call')}.${when(decisions > 0 && refused + allowed === 0, () => html` None would have gone another way.`)}</p>
${when(refused > 0, () => pile('refused', `${counted(refused, 'call')} would have been refused`, refuse, facts.at))}
${when(allowed > 0, () => pile('allowed', `${counted(allowed, 'call')} would have passed the gate`, allow, facts.at))}
<p>${button(facts, 'admin.grant', `${path}/candidate/promote`, promote, fields)} ${button(facts, 'admin.grant', `${path}/candidate/remove`, 'Remove', fields)}</p></section>`
}

const callsIn = (groups: Watched['value']['would_refuse']): number =>
  groups.reduce((sum, { decisions }) => sum + decisions, 0)
