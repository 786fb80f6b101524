import type { MinProof, ProofDemands } from '../../../db/ledger/authority/rule.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { FormSubmission } from '../frame/acting.ts'
import { csrf, type HtmlFragment, html } from '../frame/parts.ts'

const WORDS: Readonly<Record<MinProof, string>> = {
  certificate: 'a certificate',
  key: 'a key that each call proves, of a person who signed in',
  none: 'a token alone, of a person who signed in',
}

/** Renders the form of the least proof that a server takes (docs/people.md#grades). */
export function leastProofForm(
  { min_proof: all, tool_min_proof: own }: ProofDemands,
  { path, ifMatch }: { readonly path: string; readonly ifMatch: string },
  { session }: Pick<AdministrationFacts, 'session'>,
): HtmlFragment {
  const lines = Object.entries(own).map(([tool, proof]) => `${tool}=${proof}`)
  return html`<details><summary>Least proof</summary><form method="post" action="${path}/proof">${csrf(session)}<input type="hidden" name="if_match" value="${ifMatch}">
<label>It takes at least <select name="min_proof">${Object.entries(WORDS).map(([proof, words]) => html`<option value="${proof}"${proof === all && html` selected`}>${words}</option>`)}</select></label>
<label>Of single tools instead, a line each <textarea name="tool_min_proof" rows="4" placeholder="search=none">${lines.join('\n')}</textarea></label>
<p class="faint">To take a weaker proof than now needs <code>admin.grant</code>.</p>
<button>Set the least proof</button></form></details>`
}

/** Reads that form. What is no proof is sent on as it is, and refused by the operation. */
export function leastProofIn(form: FormSubmission['form']): ProofDemands {
  const lines = (form.get('tool_min_proof') ?? '').split('\n').map((line) => line.trim())
  return {
    min_proof: proofIn(form.get('min_proof') ?? ''),
    tool_min_proof: Object.fromEntries(lines.filter((line) => line !== '').map(toolProofIn)),
  }
}

// Checked by the operation.
const proofIn = (text: string): MinProof => text as MinProof

function toolProofIn(line: string): readonly [tool: string, proof: MinProof] {
  const end = line.lastIndexOf('=')
  return end < 1 ? [line, proofIn('')] : [line.slice(0, end), proofIn(line.slice(end + 1))]
}
