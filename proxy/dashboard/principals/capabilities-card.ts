import type { Administered } from '../../../plugins/operators/operator.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { granting } from '../../admin/operation/demands.ts'
import { whyAllTheSame } from '../frame/again.ts'
import { csrf, type Html, html, may, NOTHING, pathOf, tokens, when } from '../frame/parts.ts'
import { problems } from '../frame/problems.ts'
import type { Preview } from '../rehearsed/previewed.ts'
import { buttonOf, rehearsalOf } from '../rehearsed/rehearsal.ts'
import { nameOfShown } from '../rehearsed/shown.ts'
import type { Detailed } from './detailed.ts'
import { fieldsOf } from './fields.ts'
import { PAGES, type Plural } from './kinds.ts'

/** What is in the form beside the set that is stored: what somebody typed, and what came of it. */
export interface Typed {
  readonly text: string
  /** The state that it was typed about. Absent: the one of now. */
  readonly ifMatch?: string
  readonly preview?: Preview
  /** Whether the button was pressed, and only this page stands in between. */
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

/** The card of a principal's set: one textbox, and a button that tells the truth. */
export function capabilitiesCard(plural: Plural, one: Detailed, facts: Administered, typed: Typed): Html {
  const { kind } = PAGES[plural]
  const grant = granting(kind)
  const held = one.value.capabilities
  const shown = html`<p id="held">${tokens(held)}</p>`
  if (!may(facts, grant))
    return html`<section class="card"><h2>Capabilities</h2>${shown}<p class="needs">Changing them needs <code>${grant}</code>.</p></section>`
  const { text, preview, refusal } = typed
  const set = typedTokens(text)
  // What is expected is asked behind the rehearsal: whoever comes to it has seen that.
  const isBroken = refusal?.reason === 'expectation_broken'
  const asks = isBroken || (preview !== undefined && preview.totals.newly_refused > 0)
  const stale = refusal?.reason === 'precondition_failed'
  // What a link has typed in was rehearsed by nobody yet.
  const isNew = !preview && !refusal && !isSame(set, held)
  const path = pathOf(plural, one.id)
  return html`<section class="card" id="capabilities"><h2>Capabilities</h2>${shown}
<form method="post" action="${path}/capabilities" data-rehearse="${isNew ? 'now' : ''}">
${csrf(facts.session)}<input type="hidden" name="if_match" value="${typed.ifMatch ?? `"${one.revision}"`}">
<label for="caps">The whole set, separated by commas</label>
<textarea id="caps" name="capabilities" rows="3" class="caps" data-tokens="${kind.type === 'operator' ? 'operator' : 'caller'}" autocomplete="off" spellcheck="false" aria-describedby="caps-error rehearsal"${
    refusal ? html` aria-invalid="true"` : NOTHING
  }>${text}</textarea>
<div id="caps-error">${refusal ? problems(refusal, fieldsOf(set)) : NOTHING}</div>
${when(stale, () => html`<div class="pile unknown"><h3>Somebody has changed it meanwhile</h3><dl class="facts"><dt>Stored now</dt><dd>${tokens(held)}</dd><dt>Typed by you</dt><dd>${tokens(set)}</dd></dl><p>The form is about the new state now: look, and update once more.</p></div>`)}
${preview ? rehearsalOf(preview, facts.at) : html`<section id="rehearsal" aria-live="polite"></section>`}
${when(isBroken, whyAllTheSame)}
${when(asks, () => html`<input type="hidden" name="confirm" value="yes"><input type="hidden" name="shown" value="${nameOfSet(one.id, set)}">`)}
${when(asks && typed.isPressed === true, () => html`<p class="notice" role="alert">Nothing has changed yet. Press once more, and it has.</p>`)}
<button class="${asks ? 'danger' : 'main'}">${preview && asks ? buttonOf(preview) : 'Update'}</button>
${when(plural !== 'operators', () => html`<button formaction="${path}/candidate">Try this set beside the real one</button>`)}
<p class="faint">Before anything changes, this says what it would have refused in the last 30 days.</p>
</form></section>`
}

/** Names a set of somebody as it was shown (rehearsed/shown.ts). */
export const nameOfSet = (principal: string, capabilities: readonly string[]): string =>
  nameOfShown([{ principal, capabilities }])

const isSame = (one: readonly string[], other: readonly string[]): boolean =>
  one.toSorted().join() === other.toSorted().join()
