import { insertIdentity, operatorOfPerson } from '../../../db/operators/identities.ts'
import { authorityDetail } from '../../../db/principals/authority.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { insertPrincipal, setCapabilities } from '../../../db/principals/write.ts'
import { namesUnchanged } from '../../../db/settings.ts'
import type { Author } from '../../../plugins/operators/actor.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { by, change } from '../../admin/operation/change.ts'
import type { AdminContext, By } from '../../admin/operation/context.ts'
import { idOf, OPERATOR } from '../../admin/operation/kinds.ts'
import { ownerStays } from '../../admin/operators/owners.ts'
import { changeAuthority, newSubjectKey } from '../../admin/principals/authority.ts'
import type { Mapping } from './mapping.ts'
import { type Person, SignInRefused } from './person.ts'

type Sign = Pick<By, 'id' | 'at'>

/** The operator that a person is, and the marks of the entries that say so. */
interface Found {
  readonly operator: PrincipalRecord
  readonly marks: readonly string[]
}

/**
 * Finds the operator that a person is by the configuration (docs/operators.md#oidc): the one that the map names, with
 * its own set; or the person's own, made at the first sign-in, with exactly the set that the map gives. What it
 * changes says so in its rows. Throws {@link SignInRefused}.
 */
export async function operatorOf(
  context: AdminContext,
  { of }: Pick<Mapping, 'of'>,
  person: Person,
  sign: Sign,
): Promise<Found> {
  const mapped = of(person.values)
  if (mapped === null) throw new SignInRefused('not_mapped')
  if (mapped === 'ambiguous') throw new SignInRefused('ambiguous')
  const { marks } = mapped
  const { database, organisation } = context
  if ('operator' in mapped) {
    const named = await findPrincipal(database, 'operator', idOf(OPERATOR, organisation, mapped.operator))
    return { operator: active(named), marks }
  }
  return { operator: await ownOf(context, person, mapped.capabilities, sign), marks }
}

function active(operator: PrincipalRecord | undefined): PrincipalRecord {
  if (!operator) throw new SignInRefused('operator_unknown')
  if (!operator.is_active) throw new SignInRefused('operator_deactivated', operator.principal_id)
  return operator
}

async function ownOf(
  context: AdminContext,
  person: Person,
  capabilities: readonly string[],
  sign: Sign,
): Promise<PrincipalRecord> {
  const { database } = context
  const id = (await operatorOfPerson(database, person)) ?? (await make(context, person, capabilities, sign))
  const own = active(await findPrincipal(database, 'operator', id))
  if (isSame(own.capabilities, capabilities)) return own
  await give(context, id, capabilities, sign)
  return active(await findPrincipal(database, 'operator', id))
}

const isSame = (one: readonly string[], other: readonly string[]): boolean =>
  one.length === other.length && one.every((capability) => other.includes(capability))

/** Who signs in is the author of what its sign-in changes. */
const itself = (id: string): Author => ({ id, type: 'operator', via: 'oidc', standing: [] })

/** Makes the operator of a person, and returns its id. A name that is somebody else's is never shared. */
async function make(
  context: AdminContext,
  person: Person,
  capabilities: readonly string[],
  sign: Sign,
): Promise<string> {
  const { database, organisation } = context
  const { name } = person
  const id = idOf(OPERATOR, organisation, name)
  if (await findPrincipal(database, 'operator', id)) throw new SignInRefused('name_taken', id)
  const caller = { ...sign, actor: itself(id) }
  const principal = {
    type: 'operator',
    id,
    ref: id,
    name,
    displayName: null,
    capabilities,
    enrollmentMethod: 'oidc',
    spiffeId: null,
    dpopJkt: null,
    federated: false,
    ...by(caller),
  } as const
  const state = { capabilities, is_active: true, thumbprints: [], dpop_jkts: [] }
  const subject = { principal_ref: id, enrollment_method: 'oidc', spiffe_id: null } as const
  const { issuer } = person
  try {
    await change(context, caller, {
      action: 'operator.created',
      detail: { ...authorityDetail(subject, 1, state), issuer },
      assertions: [namesUnchanged(database, context)],
      statements: [
        insertPrincipal(database, principal),
        newSubjectKey(context, principal),
        insertIdentity(database, person, id, sign.at),
      ],
    })
    return id
  } catch (error) {
    // Made meanwhile: for this person by its other tab, or for somebody else.
    const isTaken = error instanceof Refusal && error.reason === 'conflict'
    if (isTaken && (await operatorOfPerson(database, person)) === id) return id
    throw isTaken ? new SignInRefused('name_taken', id) : error
  }
}

/** Gives a person's own operator exactly what the configuration says. */
async function give(
  context: AdminContext,
  id: string,
  capabilities: readonly string[],
  sign: Sign,
): Promise<void> {
  const { database } = context
  const caller = { ...sign, actor: itself(id) }
  const given = changeAuthority(
    context,
    OPERATOR,
    caller,
    { id, ifMatch: undefined },
    async (record, state) => {
      const { revision, capabilities: previous } = record
      if (!record.is_active || isSame(state.capabilities, capabilities)) return null
      const next = { capabilities }
      return {
        action: 'operator.capabilities_patched',
        next,
        detail: { previous },
        assertions: await ownerStays(context, sign.at, record, next),
        statements: [
          setCapabilities(database, { type: 'operator', id, revision, capabilities, ...by(caller) }),
        ],
      }
    },
  )
  await given.catch((error: unknown) => {
    const isLast = error instanceof Refusal && error.reason === 'last_owner'
    throw isLast ? new SignInRefused('last_owner', id) : error
  })
}
