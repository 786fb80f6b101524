import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { OCSF_VERSION } from './classes.ts'

/** Members of an event. Absent ones have no value. */
export type OcsfMembers = Readonly<Record<string, unknown>>

export const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined

const numberOf = (value: unknown): number | undefined =>
  Number.isSafeInteger(value) ? Number(value) : undefined

const USER_TYPES: Readonly<Record<string, readonly [id: number, name: string]>> = {
  user: [1, 'User'],
  operator: [2, 'Admin'],
  agent: [4, 'Service'],
  workload: [4, 'Service'],
}

/** Somebody by the name in the ledger, and by the readable one, if there is one. */
export function userOf(uid: string | null | undefined, type: unknown, name?: string): OcsfMembers {
  const [id, caption] = USER_TYPES[textOf(type) ?? ''] ?? [0, 'Unknown']
  return { ...(uid ? { uid } : { name: 'unknown' }), ...(name && { name }), type_id: id, type: caption }
}

/** The caller or the author of a row. */
export const actorOf = (row: AuditRow): OcsfMembers =>
  row.principal_id === null
    ? { app_name: 'unknown' }
    : { user: userOf(row.principal_id, row.principal_type, row.principal_name) }

/** Somebody that a change is about. */
export const subjectOf = ({ action, detail, subject_name: name }: AuditRow): OcsfMembers => {
  const [kind = ''] = action.split('.')
  return userOf(textOf(detail.subject), textOf(detail.subject_type) ?? kind, name)
}

export const SERVICE: OcsfMembers = { name: 'Sallyport' }

/** The place that a call came from: its certificate, else the grant that it is under. */
export const sourceOf = (row: AuditRow): OcsfMembers => ({
  uid: row.cert_thumbprint ?? textOf(row.detail.grant) ?? row.principal_id ?? 'unknown',
})

export const ALLOWED: OcsfMembers = {
  ...{ action_id: 1, action: 'Allowed', disposition_id: 1, disposition: 'Allowed' },
}
export const BLOCKED: OcsfMembers = {
  ...{ action_id: 2, action: 'Denied', disposition_id: 2, disposition: 'Blocked' },
}

/** The product that makes the events, as it was when the row was written. */
export const productOf = ({ version }: AuditRow): OcsfMembers => ({
  ...{ name: 'Sallyport', vendor_name: 'Sallyport', version },
})

/** The members that say which row an event is of: who has the event can ask for the row's proof. */
export const metadataOf = (row: AuditRow, profiles: readonly string[]): OcsfMembers => ({
  uid: `${row.stream}:${row.seq}`,
  original_event_uid: row.row_hash,
  ...(row.request_id !== null && { correlation_uid: row.request_id }),
  event_code: row.action,
  log_name: row.stream,
  sequence: row.seq,
  original_time: row.recorded_at,
  product: productOf(row),
  ...(profiles.length > 0 && { profiles }),
  version: OCSF_VERSION,
})

const OUTCOMES: Readonly<Record<string, readonly [id: number, caption: string]>> = {
  allowed: [1, 'Success'],
  success: [1, 'Success'],
  unknown: [0, 'Unknown'],
}

/** The status of a row, with its reason. */
export function statusOf({ status, detail }: AuditRow): OcsfMembers {
  const [id, caption] = OUTCOMES[status] ?? [2, 'Failure']
  const reason = textOf(detail.reason)
  return {
    ...{ status_id: id, status: caption, status_code: status },
    ...(reason !== undefined && { status_detail: reason }),
  }
}

/** The number of refusals that a row stands for, and the time that its call took. */
export function countsOf({ detail }: AuditRow): OcsfMembers {
  const summarised: UnknownRecord = isObject(detail.summarised) ? detail.summarised : {}
  const count = numberOf(summarised.count) ?? numberOf(detail.count)
  const duration = numberOf(detail.duration_ms)
  return { ...(count !== undefined && { count }), ...(duration !== undefined && { duration }) }
}

/** The members of a row that stand nowhere else in its event. */
export const unmappedOf = (row: AuditRow): OcsfMembers => ({
  detail: row.detail,
  prev_hash: row.prev_hash,
  config_digest: row.config_digest,
  ...(row.dpop_jkt !== null && { dpop_jkt: row.dpop_jkt }),
})
