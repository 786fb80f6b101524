import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { isObject } from '../../../db/support/json.ts'
import type { OcsfActivity } from './classes.ts'
import { actorOf, type OcsfMembers, SERVICE, sourceOf, subjectOf, textOf, userOf } from './parts.ts'

/** The author of a change, and the place it came from. */
const authorOf = (row: AuditRow): OcsfMembers => ({
  actor: actorOf(row),
  ...(row.cert_thumbprint !== null && { src_endpoint: sourceOf(row) }),
})

/** The one who signed in or got a token: the subject, if the row names one, else the caller. */
export const authenticationMembers = (row: AuditRow): OcsfMembers => ({
  ...authorOf(row),
  user:
    textOf(row.detail.subject) === undefined
      ? userOf(row.principal_id, row.principal_type, row.principal_name)
      : userOf(textOf(row.detail.subject), 'user', row.subject_name),
  service: SERVICE,
})

export const accountMembers = (row: AuditRow): OcsfMembers => ({ ...authorOf(row), user: subjectOf(row) })

const namesIn = (value: unknown): readonly string[] =>
  Array.isArray(value) ? value.filter((name) => typeof name === 'string') : []

/** Says if a change of capabilities gives any, or only takes some. The old list stands in `unmapped.detail.previous`. */
export function accessActivity({ action, detail }: AuditRow, usual: OcsfActivity): OcsfActivity {
  if (usual.id !== 99) return usual
  const [now, before] = [namesIn(detail.capabilities), namesIn(detail.previous)]
  if (now.some((name) => !before.includes(name))) return { id: 1, name: 'Assign Privileges' }
  const takes = before.some((name) => !now.includes(name)) || action.endsWith('removed')
  return takes ? { id: 2, name: 'Revoke Privileges' } : usual
}

/** A change of what somebody may do: with the whole new list. */
export function accessMembers(row: AuditRow): OcsfMembers {
  const { detail } = row
  const given = namesIn(detail.capabilities ?? detail.candidate)
  const resource = textOf(detail.resource)
  const set = textOf(detail.set)
  const user = set === undefined || textOf(detail.subject) !== undefined ? subjectOf(row) : { name: set }
  return {
    ...authorOf(row),
    user,
    ...(given.length > 0 && { privileges: given }),
    ...(resource !== undefined && { resources: [{ uid: resource, type: 'mcp_resource' }] }),
  }
}

/** The members of `detail` that name what a change is about, the most exact one first. */
const NAMED_BY = [
  ...['resource', 'stop', 'limit', 'approval', 'proposal', 'rehearsal', 'grant', 'sink', 'segment', 'file'],
  ...['provider', 'set', 'subject', 'digest', 'name', 'id', 'kid', 'vkey', 'origin', 'ca'],
]

function nameOf({ detail }: AuditRow): string | undefined {
  for (const member of NAMED_BY) {
    const value = detail[member]
    const found = isObject(value) ? (textOf(value.id) ?? textOf(value.name)) : textOf(value)
    if (found !== undefined) return found
  }
  return undefined
}

/** A change of anything else: the kind of thing is the first word of the action. */
export function entityMembers(row: AuditRow): OcsfMembers {
  const [type = ''] = row.action.split('.')
  const reason = textOf(row.detail.reason)
  return {
    ...authorOf(row),
    entity: { uid: nameOf(row) ?? type, type },
    ...(reason !== undefined && row.status === 'success' && { comment: reason }),
  }
}
