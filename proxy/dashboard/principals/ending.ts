import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import { reachableOwners } from '../../admin/operators/owners.ts'
import { type FormSubmission, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { countWithNoun, type HtmlFragment, html, pathOf } from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { type CallerPlural, PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

const toPrincipal =
  (plural: PrincipalPlural) =>
  ({ params }: FormSubmission): string =>
    pathOf(plural, params.id ?? '')

const about = ({ params: { id = '', thumbprint = '', jkt = '' } }: FormSubmission) => ({
  id,
  thumbprint,
  jkt,
})

/** POST …/dpop-jwk/{jkt}/adopt: registers the key that signs already. */
export const adoptKeyForm = (plural: CallerPlural, dashboard: DashboardContext) =>
  formHandler(dashboard, PRINCIPAL_PAGES[plural].operations.adoptDpopKey, {
    ...{ to: toPrincipal(plural), notice: 'key_adopted' },
    given: (facts) => ({ ...inputById(facts), params: about(facts) }),
  })

/** Says what ending an operator's way in comes to: its calls are of administration, and are not counted. */
export async function operatorWarning(
  plural: PrincipalPlural,
  { context }: DashboardContext,
  facts: FormSubmission,
): Promise<HtmlFragment | null> {
  if (plural !== 'operators') return null
  const { id = '' } = facts.params
  const { value } = await perform(OPERATIONS.sessions.list, context, { query: { operator: id } }, facts)
  const others = (await reachableOwners(context, facts.at)).filter(({ principal_id: one }) => one !== id)
  return html`<p>${id} loses this way in at once. It is signed in with ${countWithNoun(value.sessions.length, 'browser')}, and its own calls are not counted.</p><p>${others.length === 0 ? html`<b>Nobody else could administer operators then.</b>` : html`These could still administer operators: ${others.map(({ name }) => name).join(', ')}.`}</p>`
}

/** The forms that take access from a principal, or one way to call from it. */
export function endingForms(plural: PrincipalPlural, dashboard: DashboardContext) {
  const { deactivate, endCertificate, endDpopKey } = PRINCIPAL_PAGES[plural].operations
  const to = toPrincipal(plural)
  const warning = (facts: FormSubmission) => operatorWarning(plural, dashboard, facts)
  return {
    deactivate: rehearsedFormHandler(dashboard, deactivate, {
      ...{ to, given: inputById, notice: 'deactivated', label: 'Deactivate' },
      title: ({ params }) => `Nobody can call as ${params.id ?? ''} any more`,
      warning,
    }),
    certificate: rehearsedFormHandler(dashboard, endCertificate, {
      ...{ to, notice: 'certificate_ended', label: 'End it now' },
      title: ({ params }) => `${params.id ?? ''} has no newer certificate to call by`,
      warning,
      given: (facts) => ({ ...inputById(facts), params: about(facts) }),
    }),
    key: formHandler(dashboard, endDpopKey, {
      ...{ to, notice: 'key_ended' },
      given: (facts) => ({ ...inputById(facts), params: about(facts) }),
    }),
  }
}
