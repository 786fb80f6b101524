import { unstoredOperator } from '../../../plugins/operators/actor.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { signInBySecret } from '../../operators/pages/sign-in.ts'
import type { FormSubmission } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { htmlDocument, refusedPage } from '../frame/frame.ts'
import { csrf, EMPTY_HTML, type HtmlFragment, html, problemList } from '../frame/parts.ts'
import { typedTokens } from '../principals/capabilities-card.ts'
import { enrollAndShow } from '../principals/enroll.ts'
import { fieldLabels } from '../principals/kinds.ts'

/** GET /proxy/setup?code=: the first page of all, with the code that the terminal printed. */
export const setupPage =
  (dashboard: DashboardContext) =>
  ({ query, remoteAddress }: Arrival): Reply => {
    const code = new URLSearchParams(query).get('code') ?? ''
    dashboard.setup.check(code, remoteAddress)
    return secretStep(code, EMPTY_HTML, 200)
  }

/** POST /proxy/setup: the operator secret, typed twice. Its user is signed in by it. */
export const setupForm =
  (dashboard: DashboardContext) =>
  async (facts: Arrival & SubmittedForm): Promise<Reply> => {
    const { form } = facts
    const { actor, holder } = unstoredOperator('admin', 'setup_code', [])
    const [code, secret] = [form.get('code') ?? '', form.get('secret') ?? '']
    dashboard.setup.check(code, facts.remoteAddress)
    try {
      if (secret !== form.get('secret_again'))
        throw new Refusal('body_unprocessable', { message: 'The two secrets do not match.' })
      const body = { setup_code: code, new_secret: secret }
      await perform(dashboard.setup.operation, dashboard.context, { body }, { ...facts, actor })
    } catch (error) {
      const isTyped = error instanceof Refusal && error.reason === 'body_unprocessable'
      if (isTyped) return secretStep(code, problemList(error), error.status)
      throw error
    }
    const signIn = signInBySecret(dashboard.signIn)
    return signIn({ ...facts, actor, holder, query: 'next=/proxy/setup/organisation' })
  }

/** Once a secret is set there is nothing at this path, for ever: also for the second of two at once. */
export const setupRefused = (refusal: Refusal, facts: Arrival): Reply =>
  refusedPage(GONE.has(refusal.reason) ? new Refusal('not_found', { message: SET }) : refusal, facts)

const GONE: ReadonlySet<RefusalReason> = new Set(['conflict'])
const SET =
  'This service is already set up: its operator secret has been set. Sign in with it at /proxy/sign-in.'

const secretStep = (code: string, problem: HtmlFragment, status: number): Reply =>
  setupStep(
    'Secret',
    html`${problem}
<p>Nobody administers this service yet. Set its operator secret: it opens everything, and is for when nothing else works.</p>
<form method="post" action="/proxy/setup"><input type="hidden" name="code" value="${code}">
<label>Operator secret <input type="password" name="secret" required minlength="12" maxlength="72" autocomplete="new-password" data-strength aria-describedby="rule"></label>
<p id="rule" class="faint">12 to 72 letters, digits and symbols, no spaces.</p>
<label>Repeat it <input type="password" name="secret_again" required minlength="12" maxlength="72" autocomplete="new-password"></label>
<button class="main">Set it and sign in</button></form>
<p class="faint">The next step names the organisation. ${caCertificate('The CA certificate')} of this moment is there for whoever wants no warning until then.</p>`,
    status,
  )

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

const STEPS = ['Secret', 'Organisation', 'First agent', 'Connect'] as const

export const setupStep = (current: (typeof STEPS)[number], body: HtmlFragment, status = 200): Reply =>
  htmlDocument(
    'Set up',
    html`<main class="alone"><h1>Set up Sallyport</h1><ol class="steps">${STEPS.map(
      (name) => html`<li${name === current ? html` aria-current="step"` : EMPTY_HTML}>${name}</li>`,
    )}</ol>
${body}</main>`,
    status,
  )

export const caCertificate = (words: string): HtmlFragment =>
  html`<a href="/pki/ca.crt" download="sallyport-ca.crt">${words}</a>`
