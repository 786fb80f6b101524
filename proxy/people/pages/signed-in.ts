import type Provider from 'oidc-provider'
import type { ProviderSession } from 'oidc-provider'
import { findPrincipal, type PrincipalRecord } from '../../../db/principals/read.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { PeopleSignIn } from './sign-in.ts'

export interface SignedInAccount {
  readonly session: ProviderSession
  readonly user: PrincipalRecord
}

/** Finds the user of this browser's session; null: nobody is signed in, or not in service any more. */
export async function findSignedIn(
  { service, context }: PeopleSignIn,
  library: Provider,
  arrival: Arrival,
): Promise<SignedInAccount | null> {
  const { req, res } = await service.exchange(arrival)
  const session = await library.Session.get(library.createContext(req, res))
  const user = await findPrincipal(context.database, 'user', session.accountId ?? '')
  return user?.is_active ? { session, user } : null
}

export async function requireAccount(...asked: Parameters<typeof findSignedIn>): Promise<SignedInAccount> {
  const found = await findSignedIn(...asked)
  if (!found) throw new Refusal('signed_out')
  return found
}
