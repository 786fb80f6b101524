import { insertIdentity, operatorOfIdentity } from '../../../db/operators/identities.ts'
import { authorityDetail } from '../../../db/principals/authority.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { insertPrincipal, setCapabilities } from '../../../db/principals/write.ts'
import { namesUnchanged } from '../../../db/settings.ts'
import { identityDigest } from '../../../db/stored-authority.ts'
import type { ChangeAuthor } from '../../../plugins/operators/actor.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { changeAuthor, commitChange } from '../../admin/operation/change.ts'
import type { AdminContext, ChangeAuthorship } from '../../admin/operation/context.ts'
import { OPERATOR, printPrincipalId } from '../../admin/operation/kinds.ts'
import { assertOwnerRemains } from '../../admin/operators/owners.ts'
import { changeAuthority, newSubjectKey } from '../../admin/principals/authority.ts'
import type { ClaimMapping } from './mapping.ts'
import { type OidcPerson, SignInRefused } from './person.ts'

type SignInStamp = Pick<ChangeAuthorship, 'id' | 'at'>

/** The operator that a person is, and the marks of the entries that say so. */
interface MatchedOperator {
  readonly operator: PrincipalRecord
  readonly marks: readonly string[]
}

/**
 * Finds the operator that a person is by the configuration (docs/operators.md#oidc): the one that the map
 * names, with its own set; or the person's own, made at the first sign-in, with exactly the set that the map
 * gives. Its changes say so in their rows. Throws {@link SignInRefused}.
 */
export async function resolveMappedOperator(
  context: AdminContext,
  { of }: Pick<ClaimMapping, 'of'>,
  person: OidcPerson,
  sign: SignInStamp,
): Promise<MatchedOperator> {
  const mapped = of(person.values)
  if (mapped === null) throw new SignInRefused('not_mapped')
  if (mapped === 'ambiguous') throw new SignInRefused('ambiguous')
  const { marks } = mapped
  const { database, organisation } = context
  if ('operator' in mapped) {
    const named = await findPrincipal(
      database,
      'operator',
      printPrincipalId(OPERATOR, organisation, mapped.operator),
    )
    return { operator: requireActive(named), marks }
  }
  return { operator: await ownOperator(context, person, mapped.capabilities, sign), marks }
}

function requireActive(operator: PrincipalRecord | undefined): PrincipalRecord {
  if (!operator) throw new SignInRefused('operator_unknown')
  if (!operator.is_active) throw new SignInRefused('operator_deactivated', operator.principal_id)
  return operator
}

async function ownOperator(
  context: AdminContext,
  person: OidcPerson,
  capabilities: readonly string[],
  sign: SignInStamp,
): Promise<PrincipalRecord> {
  const { database } = context
  const id =
    (await operatorOfIdentity(database, person)) ??
    (await createOwnOperator(context, person, capabilities, sign))
  const own = requireActive(await findPrincipal(database, 'operator', id))
  if (isSame(own.capabilities, capabilities)) return own
  await syncCapabilities(context, id, capabilities, sign)
  return requireActive(await findPrincipal(database, 'operator', id))
}

const isSame = (one: readonly string[], other: readonly string[]): boolean =>
  one.length === other.length && one.every((capability) => other.includes(capability))

/** The author of a sign-in's changes is its person. */
const selfAuthor = (id: string): ChangeAuthor => ({ id, type: 'operator', via: 'oidc', standing: [] })

/** Makes the operator of a person, and returns its id. A name that is somebody else's is never shared. */
async function createOwnOperator(
  context: AdminContext,
  person: OidcPerson,
  capabilities: readonly string[],
  sign: SignInStamp,
): Promise<string> {
  const { database, organisation } = context
  const { name } = person
  const id = printPrincipalId(OPERATOR, organisation, name)
  if (await findPrincipal(database, 'operator', id)) throw new SignInRefused('name_taken', id)
  const caller = { ...sign, actor: selfAuthor(id) }
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
    ...changeAuthor(caller),
  } as const
  const state = { capabilities, is_active: true, thumbprints: [], dpop_jkts: [] }
  const subject = { principal_ref: id, enrollment_method: 'oidc', spiffe_id: null } as const
  const { issuer } = person
  try {
    await commitChange(context, caller, {
      action: 'operator.created',
      detail: {
        ...authorityDetail(subject, 1, state),
        issuer,
        identity_sha256: identityDigest(issuer, person.subject),
      },
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
    if (isTaken && (await operatorOfIdentity(database, person)) === id) return id
    throw isTaken ? new SignInRefused('name_taken', id) : error
  }
}

/** Gives a person's own operator exactly what the configuration says. */
async function syncCapabilities(
  context: AdminContext,
  id: string,
  capabilities: readonly string[],
  sign: SignInStamp,
): Promise<void> {
  const { database } = context
  const caller = { ...sign, actor: selfAuthor(id) }
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
        assertions: await assertOwnerRemains(context, sign.at, record, next),
        statements: [
          setCapabilities(database, {
            type: 'operator',
            id,
            revision,
            capabilities,
            ...changeAuthor(caller),
          }),
        ],
      }
    },
  )
  await given.catch((error: unknown) => {
    const isLast = error instanceof Refusal && error.reason === 'last_owner'
    throw isLast ? new SignInRefused('last_owner', id) : error
  })
}
