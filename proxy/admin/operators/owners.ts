import { activeHolders, type CapabilityHolder } from '../../../db/operators/owners.ts'
import { readSecret } from '../../../db/operators/secret.ts'
import type { AuthorityState } from '../../../db/principals/authority.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import type { PrincipalRecord } from '../../../db/principals/read.ts'
import type { RowAssertion } from '../../../db/support/statement.ts'
import type { AdminCapability } from '../../../plugins/operators/capabilities.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { PrincipalKind } from '../operation/kinds.ts'

const OWNING: AdminCapability = 'admin.operators'

export const operatorRefusals = ({ type }: PrincipalKind): readonly RefusalReason[] =>
  type === 'operator' ? ['own_authority', 'last_owner'] : []

/** Refuses with `own_authority` an operator that gives itself a capability it does not hold. */
export function refuseSelfGrant(
  { actor }: Pick<AdminCaller, 'actor'>,
  { principal_ref: ref, capabilities: held }: PrincipalRecord,
  wanted: readonly string[],
): void {
  const raised = wanted.find((capability) => !held.includes(capability))
  if (raised === undefined || actor.id !== ref) return
  throw new Refusal('own_authority', { detail: { required_capability: raised } })
}

/**
 * Refuses with `last_owner` if nobody could administer operators, while the secret is disabled. Returns a
 * condition: one of the others is as it was found here. So of two owners who take each other out at once, one
 * remains.
 */
export async function assertOwnerRemains(
  context: AdminContext,
  at: number,
  { principal_type: type, principal_id: id, is_active, capabilities }: PrincipalRecord,
  next: Partial<AuthorityState>,
): Promise<readonly RowAssertion[]> {
  const { database } = context
  const isOwner = type === 'operator' && is_active && capabilities.includes(OWNING)
  const stays = (next.is_active ?? is_active) && (next.capabilities ?? capabilities).includes(OWNING)
  if (!isOwner || stays || !(await readSecret(database)).disabled) return []
  return assertOneOf(
    context,
    (await reachableOwners(context, at)).find((owner) => owner.principal_id !== id),
  )
}

/** The same of operators who lose their certificates, all at once. */
export async function assertOwnerKeepsCertificate(
  context: AdminContext,
  at: number,
  losing: ReadonlySet<string>,
): Promise<readonly RowAssertion[]> {
  if (losing.size === 0 || !(await readSecret(context.database)).disabled) return []
  for (const owner of await reachableOwners(context, at))
    if (!losing.has(owner.principal_id) || (await context.signsIn(owner.name)))
      return assertOneOf(context, owner)
  return assertOneOf(context, undefined)
}

function assertOneOf(
  { database }: Pick<AdminContext, 'database'>,
  owner: CapabilityHolder | undefined,
): readonly RowAssertion[] {
  if (!owner) throw new Refusal('last_owner')
  return [authorityUnchanged(database)('operator', owner.principal_id, owner.authority_revision)]
}

/**
 * Active holders of `admin.operators` with a certificate that holds, or a way in by the identity provider.
 */
export async function reachableOwners(
  { database, signsIn }: Pick<AdminContext, 'database' | 'signsIn'>,
  at: number,
): Promise<readonly CapabilityHolder[]> {
  const holders = await activeHolders(database, OWNING)
  const reached = await Promise.all(
    holders.map(
      async ({ name, cert_not_after: end }) =>
        (end !== null && at < Date.parse(end)) || (await signsIn(name)),
    ),
  )
  return holders.filter((_, index) => reached[index])
}
