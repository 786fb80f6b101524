import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { isObject } from '../../../db/support/json.ts'
import { agentOf, apiOf, CALL_PROFILES, callMembers, resourcesOf } from './calls.ts'
import {
  accessActivity,
  accessMembers,
  accountMembers,
  authenticationMembers,
  entityMembers,
} from './changes.ts'
import {
  ACCOUNT_CHANGE,
  API_ACTIVITY,
  AUTHENTICATION,
  FINDING,
  LIFECYCLE,
  type OcsfActivity,
  type OcsfClass,
  ocsfKindOf,
  USER_ACCESS,
} from './classes.ts'
import {
  actorOf,
  BLOCKED,
  countsOf,
  metadataOf,
  type OcsfMembers,
  productOf,
  sourceOf,
  statusOf,
  textOf,
  unmappedOf,
} from './parts.ts'

/**
 * Makes the event of a row by the Open Cybersecurity Schema Framework (docs/exports.md#ocsf). All that the row says is
 * in it: the members that the schema has no place for are in `unmapped`.
 */
export function ocsfEvent(row: AuditRow): OcsfMembers {
  const [kind, usual] = kindOf(row)
  const activity = kind === USER_ACCESS ? accessActivity(row, usual) : usual
  const [severity, caption] = severityOf(row, kind)
  return {
    ...{ class_uid: kind.uid, class_name: kind.name, category_uid: kind.category },
    ...{ activity_id: activity.id, activity_name: activity.name, type_uid: kind.uid * 100 + activity.id },
    ...{ severity_id: severity, severity: caption, time: Date.parse(row.recorded_at) },
    message: `${row.action} ${row.status}`,
    metadata: metadataOf(row, PROFILES.get(kind) ?? []),
    ...statusOf(row),
    ...countsOf(row),
    ...membersOf(row, kind),
    unmapped: unmappedOf(row),
  }
}

const PROFILES = new Map<OcsfClass, readonly string[]>([
  [API_ACTIVITY, CALL_PROFILES],
  [FINDING, ['security_control']],
])

/** A call in which content was refused is a finding. */
function kindOf(row: AuditRow): readonly [kind: OcsfClass, activity: OcsfActivity] {
  const { content } = row.detail
  const [kind, activity] = ocsfKindOf(row.action)
  const isFinding = kind === API_ACTIVITY && isObject(content) && content.verdict === 'refuse'
  return isFinding ? [FINDING, { id: 1, name: 'Create' }] : [kind, activity]
}

function severityOf({ status }: AuditRow, kind: OcsfClass): readonly [id: number, caption: string] {
  if (kind === FINDING) return [3, 'Medium']
  return status === 'denied' ? [2, 'Low'] : [1, 'Informational']
}

function membersOf(row: AuditRow, kind: OcsfClass): OcsfMembers {
  if (kind === API_ACTIVITY) return callMembers(row)
  if (kind === FINDING) return findingMembers(row)
  if (kind === LIFECYCLE) return { app: productOf(row) }
  if (kind === AUTHENTICATION) return authenticationMembers(row)
  if (kind === ACCOUNT_CHANGE) return accountMembers(row)
  return kind === USER_ACCESS ? accessMembers(row) : entityMembers(row)
}

/** The members of a tool that was quarantined, or of a call in which content was refused. */
function findingMembers(row: AuditRow): OcsfMembers {
  const isCall = !row.action.startsWith('mcp_resource.')
  const tool = textOf(row.detail.tool)
  const resource = textOf(row.detail.resource)
  const resources = isCall
    ? resourcesOf(row)
    : [
        ...(tool === undefined ? [] : [{ name: tool, type: 'tool' }]),
        ...(resource === undefined ? [] : [{ name: resource, type: 'mcp_resource' }]),
      ]
  return {
    ...{ status_id: 1, status: 'New', is_alert: true, ...BLOCKED },
    finding_info: {
      uid: `${row.stream}:${row.seq}`,
      title: isCall ? 'Content was refused' : 'A tool has changed and is quarantined',
    },
    ...(resources.length > 0 && { resources }),
    ...(isCall && {
      evidences: [{ actor: actorOf(row), api: apiOf(row), src_endpoint: sourceOf(row), ...agentOf(row) }],
    }),
  }
}
