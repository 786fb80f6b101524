import type Provider from 'oidc-provider'
import type { Logger } from 'pino'
import type { AnonymousRefusals } from '../../../plugins/audit/anonymous.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { notFound, Refusal } from '../../../plugins/refusal.ts'
import type { AdminContext } from '../../admin/operation/context.ts'
import type { Reply } from '../../http/reply.ts'
import { type OidcPerson, personOf, SignInRefused } from '../../operators/oidc/person.ts'
import type { IdentityProvider } from '../../operators/oidc/provider.ts'
import { beginTransaction, completeTransaction } from '../../operators/oidc/sign-in.ts'
import { redirectPage } from '../../operators/pages/page.ts'
import type { SignInContext } from '../../operators/signing-in.ts'
import { PEOPLE_COOKIES } from '../oauth/provider.ts'
import type { PeopleService } from '../oauth/service.ts'
import type { PeopleOptions } from '../options.ts'
import { resolveMappedUser } from './user-of.ts'

export interface PeopleSignIn extends Pick<SignInContext, 'wrongCodes' | 'exchanges'> {
  readonly context: AdminContext
  readonly service: PeopleService
  readonly options: PeopleOptions
  /** Null: the configuration names none. */
  readonly identityProvider: IdentityProvider | null
  /** 32 bytes each, the same in all processes of the service: they seal sign-ins, and make digests of people. */
  readonly key: Buffer
  readonly identityKey: Buffer
  readonly anonymous: Pick<AnonymousRefusals, 'count'>
  readonly log: Logger
}

const CALLBACK = '/oauth/callback'
const COOKIE = '__Host-people-transaction'
const ACCOUNT = '/account'
/** Pages for whoever comes by themself. */
const OWN_PAGE = /^\/(?:account(?:\/approvals\/apr_[0-9a-f]{24})?|connect\/[\w-]{1,2000})$/
const CONSENT = /^\/oauth\/consent\/([\w-]{1,64})$/

/** Sends the browser to the identity provider. `next`: the page that goes on afterwards. */
export async function beginSignIn(signing: PeopleSignIn, { at }: Arrival, next: string): Promise<Reply> {
  const redirect = `${signing.service.url}${CALLBACK}`
  return beginTransaction(signing, requireProvider(signing), { redirect, next, at, cookie: COOKIE })
}

function requireProvider({ identityProvider }: PeopleSignIn): IdentityProvider {
  if (identityProvider) return identityProvider
  throw notFound('Signing in is not set up here.')
}

/**
 * GET /oauth/callback: takes the identity provider's answer, and goes on with the sign-in that a program began,
 * or with the account page. Refuses with `sign_in_not_begun` an answer to another browser's sign-in.
 */
export const finishPeopleSignIn =
  (signing: PeopleSignIn) =>
  async (arrival: Arrival): Promise<Reply> => {
    const provider = requireProvider(signing)
    const { begun, claims } = await completeTransaction(signing, provider, arrival, COOKIE)
    const person = await refusing(signing, arrival, async () => personOf(claims, provider.options))
    const user = await refusing(signing, arrival, () => resolveMappedUser(signing, person, arrival))
    const [, uid] = CONSENT.exec(begun.next) ?? []
    return signing.service.perform(arrival, (library) =>
      uid === undefined
        ? beginAccountSession(signing, library, arrival, {
            ...{ accountId: user.principal_id, amr: person.amr },
            next: OWN_PAGE.test(begun.next) ? begun.next : ACCOUNT,
          })
        : continueSignIn(signing, library, arrival, { uid, accountId: user.principal_id, person }),
    )
  }

async function refusing<T>(
  { anonymous, log }: PeopleSignIn,
  { id }: Arrival,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof SignInRefused)) throw error
    anonymous.count('sign_in_refused')
    // Whoever runs the gateway must find out why.
    log.warn({ reqId: id, reason: error.reason }, 'a person may not sign in')
    throw new Refusal('sign_in_refused', { cause: error })
  }
}

interface SignedInPerson {
  readonly uid: string
  readonly accountId: string
  readonly person: OidcPerson
}

async function continueSignIn(
  { service }: PeopleSignIn,
  library: Provider,
  arrival: Arrival,
  { uid, accountId, person }: SignedInPerson,
): Promise<Reply> {
  const { req, res } = await service.exchange(arrival)
  const details = await library.interactionDetails(req, res).catch(() => null)
  if (details?.uid !== uid) throw new Refusal('sign_in_not_begun')
  if (details.session && details.session.accountId !== accountId)
    throw new Refusal('sign_in_refused', {
      message: `Somebody else is signed in here. Sign out at ${service.url}${ACCOUNT}, and begin again.`,
    })
  const login = { accountId, amr: person.amr }
  const next = await library.interactionResult(req, res, { login }, { mergeWithLastSubmission: false })
  // The browser came from another site: it goes on from a page of ours.
  return redirectPage(new URL(next).pathname)
}

/** Begins the session of a browser that came by itself, or by a link to one of its own pages. */
async function beginAccountSession(
  { service, options }: PeopleSignIn,
  library: Provider,
  arrival: Arrival,
  { accountId, amr, next }: { readonly accountId: string; readonly next: string } & Pick<OidcPerson, 'amr'>,
): Promise<Reply> {
  const { req, res } = await service.exchange(arrival)
  const before = await library.Session.get(library.createContext(req, res))
  if (before.accountId !== undefined) await before.destroy()
  const session = new library.Session()
  session.loginAccount({ accountId, amr })
  const lifeS = options.grant_hours * 3600
  await session.save(lifeS)
  const cookie = `${PEOPLE_COOKIES.session}=${session.id}; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=${lifeS}`
  return { ...redirectPage(next), cookies: [cookie] }
}
