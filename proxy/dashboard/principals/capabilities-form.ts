import type { Administered } from '../../../plugins/operators/operator.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { administerOnRecord } from '../../admin/administer.ts'
import type { Result } from '../../admin/operation.ts'
import { OPERATIONS } from '../../admin/operations.ts'
import type { Preview } from '../../admin/rehearsals/view.ts'
import type { Reply } from '../../http/reply.ts'
import type { Form } from '../../operators/pages/form.ts'
import { seeOther } from '../../operators/pages/page.ts'
import type { Dashboard } from '../dashboard.ts'
import { frame } from '../frame.ts'
import { pathOf } from '../parts.ts'
import { type Typed, typedTokens } from './capabilities-card.ts'
import { detailBody } from './detail.ts'
import { detailOf } from './detailed.ts'
import { PAGES, type Plural } from './kinds.ts'

/**
 * POST /proxy/{kind}/{id}/capabilities: replaces the set (spec §4.4). What would refuse calls of the last 30 days is shown
 * first and changes nothing; `confirm=yes` makes it. `preview=yes` changes nothing in any case.
 */
export const setCapabilitiesForm =
  (plural: Plural, dashboard: Dashboard) =>
  async (facts: Administered & Form): Promise<Reply> => {
    const { operations } = PAGES[plural]
    const { context } = dashboard
    const { id = '' } = facts.params
    const text = facts.form.get('capabilities') ?? ''
    const given = {
      params: { id },
      body: { capabilities: [...typedTokens(text)] },
      ifMatch: facts.form.get('if_match') || undefined,
    }
    const shown = async (typed: Omit<Typed, 'text'>, status = 200): Promise<Reply> => {
      const one = await detailOf(dashboard, plural, id, facts)
      return frame(dashboard, facts, {
        title: one.value.display_name || one.value.name,
        section: `/proxy/${plural}`,
        body: await detailBody(dashboard, plural, one, facts, { text, ...typed }),
        status,
      })
    }
    const only = facts.form.get('preview') === 'yes'
    try {
      if (only || facts.form.get('confirm') !== 'yes') {
        const done = await administerOnRecord(
          operations.setCapabilities,
          context,
          { ...given, query: { dry_run: 'true' } },
          facts,
        )
        // Proven by `dry_run`: nothing waits, and there is a preview.
        const { rehearsal: preview } = (done as Result<{ rehearsal: Preview }>).value
        if (only || preview.totals.newly_refused > 0) return await shown({ preview })
      }
      const forced = facts.form.get('force_reason')
      const rehearsal =
        context.requireRehearsal === 'never'
          ? undefined
          : await recordedRehearsal(dashboard, id, given.body, facts)
      const done = await administerOnRecord(
        operations.setCapabilitiesInForm,
        context,
        { ...given, query: {}, ...(forced && { forced }), ...(rehearsal && { ifRehearsed: rehearsal }) },
        facts,
      )
      return seeOther(`${pathOf(plural, id)}?notice=${'proposed' in done ? 'proposed' : 'updated'}`)
    } catch (error) {
      if (error instanceof Refusal && AGAIN.has(error.reason)) return shown({ refusal: error }, error.status)
      throw error
    }
  }

/** The refusals after which the form is shown once more, with what was typed. */
const AGAIN: ReadonlySet<RefusalReason> = new Set([
  'body_unprocessable',
  'precondition_failed',
  'expectation_broken',
  'own_authority',
  'last_owner',
  'overloaded',
])

/** Where the configuration demands a recorded rehearsal, the form makes one: what it says was shown before. */
async function recordedRehearsal(
  { context }: Dashboard,
  principal: string,
  { capabilities }: { readonly capabilities: readonly string[] },
  facts: Administered,
): Promise<string | undefined> {
  const done = await administerOnRecord(
    OPERATIONS.rehearsals.create,
    context,
    { body: { changes: [{ principal, capabilities: [...capabilities] }] } },
    facts,
  )
  return 'proposed' in done ? undefined : done.value.id
}
