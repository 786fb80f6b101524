/** The version of the schema by which events are made: github.com/ocsf/ocsf-schema, revision a5cfc68e3ca6. */
export const OCSF_VERSION = '1.9.0-dev'

/** A class of events with the uid of its category. */
export interface OcsfClass {
  readonly uid: number
  readonly name: string
  readonly category: number
}

export const API_ACTIVITY: OcsfClass = { uid: 6_003, name: 'API Activity', category: 6 }
export const LIFECYCLE: OcsfClass = { uid: 6_002, name: 'Application Lifecycle', category: 6 }
export const AUTHENTICATION: OcsfClass = { uid: 3_002, name: 'Authentication', category: 3 }
export const ACCOUNT_CHANGE: OcsfClass = { uid: 3_001, name: 'Account Change', category: 3 }
export const USER_ACCESS: OcsfClass = { uid: 3_005, name: 'User Access Management', category: 3 }
export const ENTITY: OcsfClass = { uid: 3_004, name: 'Entity Management', category: 3 }
export const FINDING: OcsfClass = { uid: 2_004, name: 'Detection Finding', category: 2 }

/** An activity of a class: its number there, and its name. */
export interface OcsfActivity {
  readonly id: number
  readonly name: string
}

const activity = (id: number, name: string): OcsfActivity => ({ id, name })

/** The class and the activity of rows whose action ends so, or begins so; the first that fits. */
const BY_ACTION: readonly (readonly [pattern: RegExp, kind: OcsfClass, activity: OcsfActivity])[] = [
  [/^service\.started$/, LIFECYCLE, activity(3, 'Start')],
  [/^service\.stopped$/, LIFECYCLE, activity(4, 'Stop')],
  [/^config\./, LIFECYCLE, activity(8, 'Update')],
  [/^admin\.sign_in|^auth\.refused$/, AUTHENTICATION, activity(1, 'Logon')],
  [/^admin\.signed_out$/, AUTHENTICATION, activity(2, 'Logoff')],
  [/^token\.issued$/, AUTHENTICATION, activity(99, 'Token Issued')],
  [/^grant\.issued$/, AUTHENTICATION, activity(99, 'Grant Issued')],
  [/^grant\./, AUTHENTICATION, activity(99, 'Grant Ended')],
  [/^mcp_resource\.tool_quarantined$/, FINDING, activity(1, 'Create')],
  [/^mcp_binding\.created$/, USER_ACCESS, activity(1, 'Assign Privileges')],
  [/^mcp_binding\./, USER_ACCESS, activity(2, 'Revoke Privileges')],
  [/\.capabilities_|\.candidate_|^capability_set\./, USER_ACCESS, activity(99, 'Change Privileges')],
  [/^mcp_(?!resource\.|binding\.)|^egress_/, API_ACTIVITY, activity(99, 'Invoke')],
  [/^(?:agent|user|workload|operator)\.(?:created|enrolled_)/, ACCOUNT_CHANGE, activity(1, 'Create')],
  [/^(?:agent|user|workload|operator)\.reactivated$/, ACCOUNT_CHANGE, activity(2, 'Enable')],
  [/^(?:agent|user|workload|operator)\.deactivated$/, ACCOUNT_CHANGE, activity(5, 'Disable')],
  [/^(?:agent|user|workload|operator)\.erased$/, ACCOUNT_CHANGE, activity(6, 'Delete')],
  [/^(?:agent|user|workload|operator|labels)\./, ACCOUNT_CHANGE, activity(99, 'Change')],
  [/^admin\.read$/, ENTITY, activity(2, 'Read')],
  [
    /[._](?:created|attached|trusted|begun|requested|invited|prepared|stated)$/,
    ENTITY,
    activity(1, 'Create'),
  ],
  [
    /[._](?:deleted|removed|detached|distrusted|ended|forgotten|cancelled|declined|expired|void)$/,
    ENTITY,
    activity(4, 'Delete'),
  ],
]

/** Finds the class and the activity of an action: the management of an entity, if nothing else fits. */
export function ocsfKindOf(action: string): readonly [kind: OcsfClass, activity: OcsfActivity] {
  const [, kind = ENTITY, known = activity(3, 'Update')] =
    BY_ACTION.find(([pattern]) => pattern.test(action)) ?? []
  return [kind, known]
}
