import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import type { FormSubmission } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { csrf, EMPTY_HTML, type HtmlFragment, html, problemList } from '../frame/parts.ts'
import { typedTokens } from '../principals/capabilities-card.ts'
import { enrollAndShow } from '../principals/enroll.ts'
import { fieldLabels } from '../principals/kinds.ts'
import { setupStep } from './step.ts'

export const FIRST_AGENT = '/proxy/setup/agent'

const SUGGESTED = { agent_name: 'my-agent', capabilities: 'llm.chat' }

/** GET /proxy/setup/agent: the third step, as long as there is no agent. */
export const firstAgentPage =
  ({ context }: DashboardContext) =>
  async (facts: AdministrationFacts): Promise<Reply> => {
    const { value } = await perform(OPERATIONS.agents.list, context, { query: { limit: '1' } }, facts)
    return value.length > 0 ? seeOther('/proxy/agents') : firstAgentStep(facts, SUGGESTED, EMPTY_HTML, 200)
  }

/** POST /proxy/setup/agent: enrolls it, and shows its key and the settings of clients, this once. */
export const firstAgentForm =
  (dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const typed = { ...SUGGESTED, ...Object.fromEntries(facts.form) }
    try {
      const capabilities = [...typedTokens(typed.capabilities)]
      const body = { agent_name: typed.agent_name, display_name: null, capabilities }
      const shown = await enrollAndShow(dashboard, body, facts)
      if (shown === null) return seeOther('/proxy/agents?notice=proposed')
      return setupStep(
        'Connect',
        html`${shown}<p><a class="button" href="/proxy">Continue to the dashboard</a></p>`,
      )
    } catch (error) {
      if (!(error instanceof Refusal) || error.status >= 500) throw error
      return firstAgentStep(
        facts,
        typed,
        problemList(error, fieldLabels(typedTokens(typed.capabilities))),
        error.status,
      )
    }
  }

const firstAgentStep = (
  facts: AdministrationFacts,
  typed: Readonly<typeof SUGGESTED>,
  problem: HtmlFragment,
  status: number,
): Reply =>
  setupStep(
    'First agent',
    html`${problem}<p>An agent calls models and tools by itself. It gets its own certificate and key, and its capabilities say what it can reach: nothing else.</p>
<form method="post" action="${FIRST_AGENT}">${csrf(facts.session)}
<label>Name <input name="agent_name" required maxlength="64" pattern="[a-zA-Z0-9._\\-]+" autocomplete="off" value="${typed.agent_name}"></label>
<label>Capabilities, separated by commas <input name="capabilities" class="caps" data-tokens="caller" autocomplete="off" value="${typed.capabilities}"></label>
<p class="faint"><code>llm.chat</code> calls models; <code>mcp.tools.list</code> lists tools. You can change this later. The certificate and key are shown once, on the next page.</p>
<button class="main">Enroll it</button></form>
<p class="faint"><a href="/proxy">Later</a>: agents are enrolled under Agents, or with <code>make agent</code>.</p>`,
    status,
  )
