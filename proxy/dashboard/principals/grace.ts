import { matchingRows } from '../../../db/ledger/read/find.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import type { AdminContext } from '../../admin/operation/context.ts'
import type { FormSubmission } from '../frame/acting.ts'
import { type HtmlFragment, html } from '../frame/parts.ts'
import type { PrincipalDetail } from './kinds.ts'

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
