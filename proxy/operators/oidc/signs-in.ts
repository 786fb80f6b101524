import type { Database } from '../../../db/database.ts'
import { isOperatorOfIssuer } from '../../../db/operators/identities.ts'
import type { OperatorsOptions } from '../options.ts'
import { readClaimMapping } from './mapping.ts'

/**
 * Makes the question whether the identity provider's people may sign in as an operator who can administer
 * others: the map names it, or somebody for whom it was made has a set that holds as much.
 */
export function canSignInByProvider(
  database: Database,
  { oidc }: OperatorsOptions,
): (operatorName: string) => Promise<boolean> {
  const { namesOperator, grantsCapability } = readClaimMapping(oidc)
  return async (name) =>
    oidc !== undefined &&
    (namesOperator(name) ||
      (grantsCapability('admin.operators') && (await isOperatorOfIssuer(database, oidc.issuer, name))))
}
