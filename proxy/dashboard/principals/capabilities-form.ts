import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import type { ChangePreview } from '../../admin/conditions/run.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import type { OperationResult } from '../../admin/operation/operation.ts'
import type { Reply } from '../../http/reply.ts'
import type { SubmittedForm } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { frame } from '../frame/frame.ts'
import { pathOf } from '../frame/parts.ts'
import { recordRequiredRehearsal, rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { nameOfSet, type TypedCapabilities, typedTokens } from './capabilities-card.ts'
import { detailBody } from './detail.ts'
import { type CallerPlural, PRINCIPAL_PAGES, type PrincipalPlural, readPrincipalDetail } from './kinds.ts'

export const candidateForms = (plural: CallerPlural, dashboard: DashboardContext) => {
  const { operations } = PRINCIPAL_PAGES[plural]
  const back = {
    to: ({ params }: FormSubmission): string => pathOf(plural, params.id ?? ''),
  }
  return {
    /** POST …/candidate: tries the set of the textbox. */
    set: async (facts: AdministrationFacts & SubmittedForm): Promise<Reply> => {
      try {
        await administerOnRecord(operations.setCandidate, dashboard.context, capabilitiesInput(facts), facts)
        return seeOther(`${back.to(facts)}?notice=tried`)
      } catch (error) {
        return refusedForm(plural, dashboard, facts, error)
      }
    },
    promote: rehearsedFormHandler(dashboard, operations.promoteCandidate, {
      ...back,
      notice: 'updated',
      title: () => 'This set becomes the real one',
      label: 'Promote',
    }),
    remove: formHandler(dashboard, operations.removeCandidate, { ...back, notice: 'untried' }),
  }
}

/**
 * POST /proxy/{kind}/{id}/capabilities: replaces the set (spec §4.4). A set that would refuse calls of the
 * last 30 days is shown first; `confirm=yes` with `shown`, its name, makes it. `preview=yes` changes nothing.
 */
export const setCapabilitiesForm =
  (plural: PrincipalPlural, dashboard: DashboardContext) =>
  async (facts: AdministrationFacts & SubmittedForm): Promise<Reply> => {
    const { operations } = PRINCIPAL_PAGES[plural]
    const { context } = dashboard
    const { id = '' } = facts.params
    const given = capabilitiesInput(facts)
    const { capabilities } = given.body
    const only = facts.form.get('preview') === 'yes'
    try {
      if (only || !isConfirmed(facts, nameOfSet(id, capabilities))) {
        const asked = { ...given, query: { dry_run: 'true' as const } }
        const done = await administerOnRecord(operations.setCapabilities, context, asked, facts)
        // Proven by `dry_run`: nothing waits, and there is a preview.
        const { rehearsal: preview } = (done as OperationResult<{ rehearsal: ChangePreview }>).value
        if (only || preview.totals.newly_refused > 0)
          return await formAgain(plural, dashboard, facts, { preview, isPressed: !only })
      }
      const forced = facts.form.get('force_reason')
      const changes = plural === 'operators' ? [] : [{ principal: id, capabilities }]
      const rehearsal = await recordRequiredRehearsal(dashboard, { changes }, facts)
      const more = { ...(forced && { forced }), ...(rehearsal && { ifRehearsed: rehearsal }) }
      const asked = { ...given, query: {}, ...more }
      const done = await administerOnRecord(operations.setCapabilitiesInForm, context, asked, facts)
      return seeOther(`${pathOf(plural, id)}?notice=${'proposed' in done ? 'proposed' : 'updated'}`)
    } catch (error) {
      return refusedForm(plural, dashboard, facts, error)
    }
  }

/** True if the second press was about the shown set. A request that names none knows what it asks for. */
function isConfirmed({ form }: SubmittedForm, set: string): boolean {
  const shown = form.get('shown')
  return form.get('confirm') === 'yes' && (shown === undefined || shown === set)
}

export const capabilitiesInput = ({ params, form }: AdministrationFacts & SubmittedForm) => ({
  params: { id: params.id ?? '' },
  body: { capabilities: [...typedTokens(form.get('capabilities') ?? '')] },
  ifMatch: form.get('if_match') || undefined,
})

/** Shows the page with the typed text and the refusal. Throws a refusal that no other text could mend. */
export function refusedForm(
  plural: PrincipalPlural,
  dashboard: DashboardContext,
  facts: AdministrationFacts & SubmittedForm,
  error: unknown,
): Promise<Reply> {
  if (!(error instanceof Refusal) || !AGAIN.has(error.reason)) throw error
  return formAgain(plural, dashboard, facts, { refusal: error })
}

async function formAgain(
  plural: PrincipalPlural,
  dashboard: DashboardContext,
  facts: AdministrationFacts & SubmittedForm,
  typed: Omit<TypedCapabilities, 'text'>,
): Promise<Reply> {
  const one = await readPrincipalDetail(dashboard, plural, facts.params.id ?? '', facts)
  const text = facts.form.get('capabilities') ?? ''
  // Only an operator who has read the present state may overwrite it.
  const isStale = typed.refusal?.reason === 'precondition_failed'
  const ifMatch = isStale ? undefined : facts.form.get('if_match')
  return frame(dashboard, facts, {
    title: one.value.display_name || one.value.name,
    section: `/proxy/${plural}`,
    body: await detailBody(dashboard, plural, one, facts, { text, ...(ifMatch && { ifMatch }), ...typed }),
    status: typed.refusal?.status ?? 200,
  })
}

const AGAIN: ReadonlySet<RefusalReason> = new Set([
  'body_unprocessable',
  'precondition_failed',
  'expectation_broken',
  'own_authority',
  'last_owner',
  'overloaded',
])
