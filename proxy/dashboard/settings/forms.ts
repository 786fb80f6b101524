import { Refusal } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { Reply } from '../../http/reply.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { html } from '../frame/parts.ts'
import { problemList } from '../frame/problems.ts'

/** POST /proxy/settings/secret: another operator secret, typed twice. */
export const rotateForm =
  (dashboard: DashboardContext) =>
  async (facts: FormSubmission): Promise<Reply> => {
    const [secret, again] = [facts.form.get('secret') ?? '', facts.form.get('secret_again') ?? '']
    const refused = (refusal: Refusal): Promise<Reply> =>
      frame(dashboard, facts, {
        title: 'The secret was not changed',
        section: '/proxy/settings',
        status: refusal.status,
        body: html`${problemList(refusal)}<p><a href="/proxy/settings">Back</a></p>`,
      })
    if (secret !== again)
      return refused(new Refusal('body_unprocessable', { message: 'The two secrets do not match.' }))
    try {
      await administerOnRecord(
        OPERATIONS.secret.rotate,
        dashboard.context,
        { body: { new_secret: secret } },
        facts,
      )
    } catch (error) {
      if (error instanceof Refusal && error.status < 500) return refused(error)
      throw error
    }
    return seeOther('/proxy/settings?notice=rotated')
  }

export const settingsForms = (dashboard: DashboardContext) => {
  const to = (): string => '/proxy/settings'
  return {
    disable: formHandler(dashboard, OPERATIONS.secret.disable, { given: () => ({}), to, notice: 'disabled' }),
    end: formHandler(dashboard, OPERATIONS.sessions.end, { given: inputById, to, notice: 'ended' }),
  }
}
