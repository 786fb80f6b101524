import { createHmac } from 'node:crypto'
import { putIdentity, userOfIdentity } from '../../../db/people/states.ts'
import { authorityDetail } from '../../../db/principals/authority.ts'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import { newPseudonym } from '../../../db/principals/subject-keys.ts'
import { insertPrincipal, setCapabilities } from '../../../db/principals/write.ts'
import { namesUnchanged } from '../../../db/settings.ts'
import type { ChangeAuthor } from '../../../plugins/operators/actor.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { changeAuthor, commitChange } from '../../admin/operation/change.ts'
import type { AdminContext, ChangeAuthorship } from '../../admin/operation/context.ts'
import { printPrincipalId, USER } from '../../admin/operation/kinds.ts'
import { changeAuthority, newSubjectKey } from '../../admin/principals/authority.ts'
import { type OidcPerson, SignInRefused } from '../../operators/oidc/person.ts'
import type { PeopleOptions } from '../options.ts'
import { mapPerson } from './mapping.ts'

interface UserSources {
  readonly context: AdminContext
  readonly options: Pick<PeopleOptions, 'map'>
  /** 32 bytes that make the digests of people. */
  readonly identityKey: Buffer
}

type SignInStamp = Pick<ChangeAuthorship, 'id' | 'at'>

/**
 * Finds the user that a person is by the configuration (docs/people.md): the one that the map names, with its own
 * set; or the person's own, made at the first sign-in, with exactly the set that the map gives. Its changes say so
 * in their rows. Throws {@link SignInRefused}.
 */
export async function resolveMappedUser(
  sources: UserSources,
  person: OidcPerson,
  sign: SignInStamp,
): Promise<PrincipalRecord> {
  const { context, options } = sources
  const mapped = mapPerson(options, person.values)
  if (mapped === null) throw new SignInRefused('not_mapped')
  if (mapped === 'ambiguous') throw new SignInRefused('ambiguous')
  const { database, organisation } = context
  if ('user' in mapped)
    return requireActive(
      await findPrincipal(database, 'user', printPrincipalId(USER, organisation, mapped.user)),
    )
  const { capabilities } = mapped
  const digest = identityOf(sources, person)
  const id =
    (await userOfIdentity(database, digest)) ??
    (await createOwnUser(sources, person, { digest, capabilities, sign }))
  const own = requireActive(await findPrincipal(database, 'user', id))
  if (isSameSet(own.capabilities, capabilities)) return own
  await applySet(context, own, capabilities, sign)
  return requireActive(await findPrincipal(database, 'user', id))
}

// A keyed digest: the table alone says nobody's subject.
const identityOf = ({ identityKey }: UserSources, { issuer, subject }: OidcPerson): string =>
  createHmac('sha256', identityKey)
    .update(JSON.stringify([issuer, subject]))
    .digest('hex')

function requireActive(user: PrincipalRecord | undefined): PrincipalRecord {
  if (!user) throw new SignInRefused('operator_unknown')
  if (!user.is_active) throw new SignInRefused('operator_deactivated')
  return user
}

const isSameSet = (one: readonly string[], other: readonly string[]): boolean =>
  one.length === other.length && one.every((capability) => other.includes(capability))

/** The author of a sign-in's changes is its person, by the name that the ledger knows. */
const selfAuthor = (ref: string): ChangeAuthor => ({ id: ref, type: 'user', via: 'oidc', standing: [] })

interface OwnUser {
  readonly digest: string
  readonly capabilities: readonly string[]
  readonly sign: SignInStamp
}

/** Makes the user of a person, and returns its id. A name that is somebody else's is never shared. */
async function createOwnUser(
  { context }: UserSources,
  { name, subject: _ }: OidcPerson,
  { digest, capabilities, sign }: OwnUser,
): Promise<string> {
  const { database, organisation } = context
  const id = printPrincipalId(USER, organisation, name)
  if (await findPrincipal(database, 'user', id)) throw new SignInRefused('name_taken')
  const ref = newPseudonym()
  const caller = { ...sign, actor: selfAuthor(ref) }
  const principal = {
    type: 'user',
    enrollmentMethod: 'oidc',
    ...{ id, ref, name, displayName: null, capabilities },
    ...{ spiffeId: null, dpopJkt: null, federated: false },
    ...changeAuthor(caller),
  } as const
  const state = { capabilities, is_active: true, thumbprints: [], dpop_jkts: [] }
  const subject = { principal_ref: ref, enrollment_method: 'oidc', spiffe_id: null } as const
  try {
    await commitChange(context, caller, {
      action: 'user.created',
      detail: authorityDetail(subject, 1, state),
      assertions: [namesUnchanged(database, context)],
      statements: [
        insertPrincipal(database, principal),
        newSubjectKey(context, principal),
        putIdentity(database, digest, id),
      ],
    })
    return id
  } catch (error) {
    // Made meanwhile: for this person by another tab, or for somebody else.
    const isTaken = error instanceof Refusal && error.reason === 'conflict'
    if (isTaken && (await userOfIdentity(database, digest)) === id) return id
    throw isTaken ? new SignInRefused('name_taken') : error
  }
}

/** Gives a person's own user exactly what the configuration says. */
async function applySet(
  context: AdminContext,
  { principal_id: id, principal_ref: ref }: PrincipalRecord,
  capabilities: readonly string[],
  sign: SignInStamp,
): Promise<void> {
  const caller = { ...sign, actor: selfAuthor(ref) }
  await changeAuthority(
    context,
    USER,
    caller,
    { id, ifMatch: undefined },
    ({ revision, ...record }, state) => {
      if (!record.is_active || isSameSet(state.capabilities, capabilities)) return null
      return {
        action: 'user.capabilities_patched',
        next: { capabilities },
        detail: { previous: record.capabilities },
        statements: [
          setCapabilities(context.database, {
            ...{ type: 'user', id, revision, capabilities },
            ...changeAuthor(caller),
          }),
        ],
      }
    },
  )
}
