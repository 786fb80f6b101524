import { type FormSubmission, formHandler, inputById } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { pathOf } from '../frame/parts.ts'
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

/** The forms that take access from a principal, or one way to call from it. */
export function endingForms(plural: PrincipalPlural, dashboard: DashboardContext) {
  const { deactivate, endCertificate, endDpopKey } = PRINCIPAL_PAGES[plural].operations
  const to = toPrincipal(plural)
  return {
    deactivate: rehearsedFormHandler(dashboard, deactivate, {
      ...{ to, given: inputById, notice: 'deactivated', label: 'Deactivate' },
      title: ({ params }) => `Nobody can call as ${params.id ?? ''} any more`,
    }),
    certificate: rehearsedFormHandler(dashboard, endCertificate, {
      ...{ to, notice: 'certificate_ended', label: 'End it now' },
      title: ({ params }) => `${params.id ?? ''} has no newer certificate to call by`,
      given: (facts) => ({ ...inputById(facts), params: about(facts) }),
    }),
    key: formHandler(dashboard, endDpopKey, {
      ...{ to, notice: 'key_ended' },
      given: (facts) => ({ ...inputById(facts), params: about(facts) }),
    }),
  }
}
