import { printSpiffeId } from '../../../certs/enrollment/spiffe-id.ts'
import type { PrincipalType } from '../../../db/schema.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'

/** The differences between the four types of principals (spec §2.1, docs/protocol.md#principal-object). */
export interface PrincipalKind {
  readonly type: PrincipalType
  readonly noun: 'Agent' | 'User' | 'Workload' | 'Operator'
  readonly plural: 'agents' | 'users' | 'workloads' | 'operators'
  readonly idField: 'agent_id' | 'principal_id'
  readonly nameField: 'agent_name' | 'user_name' | 'workload_name' | 'operator_name'
  /** The text between organisation and name in the id; agents have none. */
  readonly infix: '' | 'user::' | 'workload::' | 'operator::'
}

const kindOf = (type: PrincipalType, noun: PrincipalKind['noun']): PrincipalKind => ({
  type,
  noun,
  plural: `${type}s`,
  idField: type === 'agent' ? 'agent_id' : 'principal_id',
  nameField: `${type}_name`,
  infix: type === 'agent' ? '' : `${type}::`,
})

export const AGENT = kindOf('agent', 'Agent')
export const USER = kindOf('user', 'User')
export const WORKLOAD = kindOf('workload', 'Workload')
/** People who administer (docs/operators.md). Their sets hold `admin.*` and nothing else. */
export const OPERATOR = kindOf('operator', 'Operator')

export const PRINCIPAL_KINDS: Readonly<Record<PrincipalType, PrincipalKind>> = {
  agent: AGENT,
  user: USER,
  workload: WORKLOAD,
  operator: OPERATOR,
}

/** Prints `<org>::<infix><name>` (spec §2.1). */
export const printPrincipalId = ({ infix }: PrincipalKind, organisation: string, name: string): string =>
  `${organisation}::${infix}${name}`

/** `spiffe://<trust_domain>/<org>/<name>`, all but agents below a segment of their own. */
export const spiffeIdOf = ({ type }: PrincipalKind, trustDomain: string, org: string, name: string): string =>
  printSpiffeId(type === 'agent' ? { trustDomain, org, name } : { trustDomain, org, kind: type, name })

export const capabilityToEnroll = ({ type }: PrincipalKind): AdminCapability =>
  type === 'operator' ? 'admin.operators' : 'admin.enroll'

export const capabilityToGrant = ({ type }: PrincipalKind): AdminCapability =>
  type === 'operator' ? 'admin.operators' : 'admin.grant'
