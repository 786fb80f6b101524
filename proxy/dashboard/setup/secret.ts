import { unstoredOperator } from '../../../plugins/operators/actor.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { signInBySecret } from '../../operators/pages/sign-in.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { EMPTY_HTML, type HtmlFragment, html, problemList } from '../frame/parts.ts'
import { refusedPage } from '../frame/refused.ts'
import { caCertificate, setupStep } from './step.ts'

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
