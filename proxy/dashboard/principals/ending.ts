import { matchingRows } from '../../../db/ledger/read/find.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { AdminContext } from '../../admin/operation/context.ts'
import { perform } from '../../admin/operation/operation.ts'
import { reachableOwners } from '../../admin/operators/owners.ts'
import { type FormSubmission, formHandler } from '../frame/acting.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { countWithNoun, type HtmlFragment, html, pathOf } from '../frame/parts.ts'
import { rehearsedFormHandler } from '../rehearsed/acting-rehearsed.ts'
import { type CallerPlural, PRINCIPAL_PAGES, type PrincipalDetail, type PrincipalPlural } from './kinds.ts'

const WEEK_MS = 604_800_000
const MAX_ROWS = 200

/**
 * Tells if whoever holds somebody's certificate may be somebody else: it is inactive, or was switched off, or had
 * a certificate ended, in the last week. If too many were to know, it may.
 */
export async function isInIncident(
  { database }: AdminContext,
  { id, value: { principal_type: type, principal_ref: ref = id, is_active: active } }: PrincipalDetail,
  { at, hangup }: Pick<AdministrationFacts, 'at' | 'hangup'>,
): Promise<boolean> {
  if (!active) return true
  for (const action of [`${type}.deactivated`, `${type}.certificate_ended`]) {
    let seen = 0
    for await (const { leaf } of matchingRows(
      database.kysely,
      { action, since: at - WEEK_MS },
      MAX_ROWS,
      hangup.signal,
    )) {
      seen += 1
      const { detail } = JSON.parse(leaf) as { readonly detail?: { readonly subject?: unknown } }
      if (detail?.subject === ref) return true
    }
    if (seen === MAX_ROWS) return true
  }
  return false
}

export interface GraceChoice {
  /** The word for what is replaced. */
  readonly what: string
  /** The configured grace. */
  readonly hours: number
  /** True: that it ends now is chosen already. */
  readonly now: boolean
}

/** Asks if what is replaced ends now or counts for the configured grace: `grace_hours` of the form. */
export const graceChoice = ({ what, hours, now }: GraceChoice): HtmlFragment => {
  const option = (value: string, label: string, chosen: boolean): HtmlFragment =>
    html`<label class="inline"><input type="radio" name="grace_hours" value="${value}"${chosen ? html` checked` : html``}> ${label}</label> `
  return html`<fieldset><legend>The ${what} before</legend>${option('0', 'ends now: it may be in other hands', now)}${option('', `is accepted for ${String(hours)} h more`, !now)}</fieldset>`
}

/** Reads that choice, or another number of hours, as the member of a request. */
export const graceOf = ({ form }: FormSubmission): { readonly grace_hours?: number } => {
  const hours = form.get('grace_hours')?.trim() ?? ''
  return hours === '' ? {} : { grace_hours: Number(hours) }
}

const toPrincipal =
  (plural: PrincipalPlural) =>
  ({ params }: FormSubmission): string =>
    pathOf(plural, params.id ?? '')

/** POST …/dpop-jwk/{jkt}/adopt: registers the key that signs already. */
export const adoptKeyForm = (plural: CallerPlural, dashboard: DashboardContext) =>
  formHandler(dashboard, PRINCIPAL_PAGES[plural].operations.adoptDpopKey, {
    ...{ to: toPrincipal(plural), notice: 'key_adopted' },
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
      ...{ to, notice: 'deactivated', label: 'Deactivate' },
      title: ({ params }) => `Nobody can call as ${params.id ?? ''} any more`,
      warning,
    }),
    certificate: rehearsedFormHandler(dashboard, endCertificate, {
      ...{ to, notice: 'certificate_ended', label: 'End it now' },
      title: ({ params }) => `${params.id ?? ''} has no newer certificate to call by`,
      warning,
    }),
    key: formHandler(dashboard, endDpopKey, { to, notice: 'key_ended' }),
  }
}
