import { capabilityMissing } from '../../../plugins/capability.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import type { AdminCaller } from './context.ts'
import type { PrincipalKind } from './kinds.ts'

/** The capability to enroll, certify or deactivate a principal of this kind. */
export const capabilityToEnroll = ({ type }: PrincipalKind): AdminCapability =>
  type === 'operator' ? 'admin.operators' : 'admin.enroll'

/** The capability to set the capabilities of a principal of this kind. */
export const capabilityToGrant = ({ type }: PrincipalKind): AdminCapability =>
  type === 'operator' ? 'admin.operators' : 'admin.grant'

/**
 * Asks for a capability that an operation demands for some of its inputs in addition to the one of its route.
 * Refuses with `capability_missing`.
 */
export function requireCapability({ actor }: Pick<AdminCaller, 'actor'>, capability: string): void {
  if (actor.capabilities.includes(capability)) return
  throw capabilityMissing(capability, `This also requires ${capability}. Ask an operator who holds it.`)
}
