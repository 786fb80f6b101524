import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { capabilityToGrant } from '../../admin/operation/kinds.ts'
import { forceReasonField } from '../frame/acting.ts'
import {
  capabilityTokens,
  csrf,
  EMPTY_HTML,
  type HtmlFragment,
  hasCapability,
  html,
  pathOf,
  problemList,
} from '../frame/parts.ts'
import type { ChangePreviewView } from '../rehearsed/rehearsal.ts'
import { buttonOf, rehearsalOf, shownChangesDigest } from '../rehearsed/rehearsal.ts'
import type { PrincipalDetail } from './kinds.ts'
import { fieldLabels, PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

export interface TypedCapabilities {
  readonly text: string
  /** The state that it was typed about. Absent: the one of now. */
  readonly ifMatch?: string
  readonly preview?: ChangePreviewView
  /** True: the button was pressed, and only this page stands in between. */
  readonly isPressed?: boolean
  readonly refusal?: Refusal
}

/** The tokens of the textbox: separated by commas, blanks and repetitions ignored (spec §4.4). */
export const typedTokens = (text: string): readonly string[] => [
  ...new Set(
    text
      .split(',')
      .map((one) => one.trim())
      .filter((one) => one !== ''),
  ),
]

export function capabilitiesCard(
  plural: PrincipalPlural,
  one: PrincipalDetail,
  facts: AdministrationFacts,
  typed: TypedCapabilities,
): HtmlFragment {
  const { kind } = PRINCIPAL_PAGES[plural]
  const grant = capabilityToGrant(kind)
  const held = one.value.capabilities
  const shown = html`<p id="held">${capabilityTokens(held)}</p>`
  if (!hasCapability(facts, grant))
    return html`<section class="card"><h2>Capabilities</h2>${shown}<p class="needs">Changing them needs <code>${grant}</code>.</p></section>`
  const { text, preview, refusal } = typed
  const set = typedTokens(text)
  // Expectations are asked after the rehearsal: an operator who comes to one has seen that.
  const isBroken = refusal?.reason === 'expectation_broken'
  const asks = isBroken || (preview !== undefined && preview.totals.newly_refused > 0)
  const stale = refusal?.reason === 'precondition_failed'
  // A set that a link has typed in was rehearsed by nobody yet.
  const isNew = !preview && !refusal && !isSame(set, held)
  const path = pathOf(plural, one.id)
  return html`<section class="card" id="capabilities"><h2>Capabilities</h2>${shown}
<form method="post" action="${path}/capabilities" data-rehearse="${isNew ? 'now' : ''}">
${csrf(facts.session)}<input type="hidden" name="if_match" value="${typed.ifMatch ?? `"${one.revision}"`}">
<label for="caps">All capabilities, separated by commas</label>
<textarea id="caps" name="capabilities" rows="3" class="caps" data-tokens="${kind.type === 'operator' ? 'operator' : 'caller'}" autocomplete="off" spellcheck="false" aria-describedby="caps-error rehearsal"${
    refusal ? html` aria-invalid="true"` : EMPTY_HTML
  }>${text}</textarea>
<div id="caps-error">${refusal ? problemList(refusal, fieldLabels(set)) : EMPTY_HTML}</div>
${stale && html`<div class="pile unknown"><h3>Somebody else has changed it in the meantime</h3><dl class="facts"><dt>Stored now</dt><dd>${capabilityTokens(held)}</dd><dt>Typed by you</dt><dd>${capabilityTokens(set)}</dd></dl><p>The form now applies to the new state: check it, and update again.</p></div>`}
${preview ? rehearsalOf(preview, facts.at) : html`<section id="rehearsal" aria-live="polite"></section>`}
${isBroken && forceReasonField()}
${asks && html`<input type="hidden" name="confirm" value="yes"><input type="hidden" name="shown" value="${nameOfSet(one.id, set)}">`}
${asks && typed.isPressed === true && html`<p class="notice" role="alert">Nothing has changed yet. Press the button again to make the change.</p>`}
<button class="${asks ? 'danger' : 'main'}">${preview && asks ? buttonOf(preview) : 'Update'}</button>
${plural !== 'operators' && html`<button formaction="${path}/candidate">Try this set alongside the real one</button>`}
<p class="faint">Before anything changes, this shows what the change would have refused in the last 30 days.</p>
</form></section>`
}

/** Names a set of somebody as it was shown (rehearsed/rehearsal.ts). */
export const nameOfSet = (principal: string, capabilities: readonly string[]): string =>
  shownChangesDigest([{ principal, capabilities }])

const isSame = (one: readonly string[], other: readonly string[]): boolean =>
  one.toSorted().join() === other.toSorted().join()
