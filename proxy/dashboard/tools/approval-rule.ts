import type { ApproverKind } from '../../../db/ledger/approvals/approval-rule.ts'
import type { McpResourceFields, NO_APPROVALS } from '../../../db/mcp/resources.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { FormSubmission } from '../frame/acting.ts'
import { csrf, type HtmlFragment, html } from '../frame/parts.ts'

type RuleFields = Pick<McpResourceFields, keyof typeof NO_APPROVALS>

const WORDS = { nobody: 'nobody', operator: 'an operator', person: 'the person whose call it is' } as const

export const approverWords = (by: ApproverKind | null): string => WORDS[by ?? 'nobody']

/** Renders the form of a server's rule about approvals (docs/approvals.md). */
export function approvalRuleForm(
  { approval, tool_approvals: own, approval_ttl_s: ttl, approval_wait_s: wait }: RuleFields,
  { path, ifMatch }: { readonly path: string; readonly ifMatch: string },
  { session }: Pick<AdministrationFacts, 'session'>,
): HtmlFragment {
  const lines = Object.entries(own).map(([tool, by]) => `${tool}=${by ?? 'nobody'}`)
  return html`<details><summary>Approval of each call</summary><form method="post" action="${path}/approval">${csrf(session)}<input type="hidden" name="if_match" value="${ifMatch}">
<label>Each call is approved by <select name="approval">${Object.entries(WORDS).map(([by, words]) => html`<option value="${by}"${by === (approval ?? 'nobody') && html` selected`}>${words}</option>`)}</select></label>
<label>Other rules of single tools, a line each <textarea name="tool_approvals" rows="4" placeholder="delete_file=operator">${lines.join('\n')}</textarea></label>
<label>A call may wait, and an approval last, for seconds <input name="approval_ttl_s" type="number" min="60" max="86400" required value="${String(ttl)}"></label>
<label>A call is held before it is refused, for seconds <input name="approval_wait_s" type="number" min="0" max="110" required value="${String(wait)}"></label>
<button>Set the rule</button></form></details>`
}

/** Reads the rule of that form. What is none is sent on as it is, and refused by the operation. */
export function approvalRuleIn(form: FormSubmission['form']) {
  const lines = (form.get('tool_approvals') ?? '').split('\n').map((line) => line.trim())
  return {
    approval: approverIn(form.get('approval') ?? ''),
    tool_approvals: Object.fromEntries(lines.filter((line) => line !== '').map(toolRuleIn)),
    approval_ttl_s: Number(form.get('approval_ttl_s')),
    approval_wait_s: Number(form.get('approval_wait_s')),
  }
}

// Checked by the operation.
const approverIn = (by: string): ApproverKind | null => (by === 'nobody' ? null : (by as ApproverKind))

function toolRuleIn(line: string): readonly [tool: string, by: ApproverKind | null] {
  const end = line.lastIndexOf('=')
  return end < 1 ? [line, approverIn('')] : [line.slice(0, end), approverIn(line.slice(end + 1))]
}
