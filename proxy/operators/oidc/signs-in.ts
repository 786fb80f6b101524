import type { Database } from '../../../db/database.ts'
import { isOfIssuer } from '../../../db/operators/identities.ts'
import type { OperatorsOptions } from '../options.ts'
import { mappingOf } from './mapping.ts'

/**
 * Makes the question whether the identity provider's people may sign in as an operator who can administer others: the
 * map names it, or a set that holds as much is somebody's for whom it was made.
 */
export function signsInBy(
  database: Database,
  { oidc }: OperatorsOptions,
): (operatorName: string) => Promise<boolean> {
  const { names, gives } = mappingOf(oidc)
  return async (name) =>
    oidc !== undefined &&
    (names(name) || (gives('admin.operators') && (await isOfIssuer(database, oidc.issuer, name))))
}
