import { hash } from 'node:crypto'
import type { Database } from '../../../db/database.ts'
import { isOperatorOfIssuer } from '../../../db/operators/identities.ts'
import {
  ADMIN_CAPABILITIES,
  type AdminCapability,
  isOperatorSet,
  OPERATOR_SETS,
} from '../../../plugins/operators/capabilities.ts'
import type { OidcOptions, OperatorsOptions } from '../options.ts'

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

/** The operator by the values of a claim. `marks`: of the entries that say so. */
export type MappedOperator = { readonly marks: readonly string[] } & (
  | { readonly operator: string }
  | { readonly capabilities: readonly AdminCapability[] }
)

/** People who may sign in by the identity provider, in one configuration. */
export interface ClaimMapping {
  /** Marks of every entry: a session rests on those that have let it in, and ends with them. */
  readonly marks: ReadonlySet<string>
  /**
   * Finds the operator for the values of the claim: the one that a value names, whatever sets others stand
   * for; else one with all that their sets hold. Null if none stands for anything, `ambiguous` if they name
   * two operators.
   */
  readonly of: (values: readonly string[]) => MappedOperator | 'ambiguous' | null
  /** True if somebody may be the operator of this name, or get a capability by a set. */
  readonly namesOperator: (operator: string) => boolean
  readonly grantsCapability: (capability: AdminCapability) => boolean
}

/** The mapping of a configuration; without an identity provider it lets nobody in. */
export function readClaimMapping(oidc: OidcOptions | undefined): ClaimMapping {
  const entries = new Map(Object.entries(oidc?.map ?? {}))
  const targets = [...entries.values()]
  // All the terms that a sign-in was judged by: if any of them changes, so does the mark, and the session
  // ends.
  const terms = [oidc?.issuer, oidc?.client_id, oidc?.claim, oidc?.acr_values, oidc?.amr_values]
  const mark = (value: string, target: string): string =>
    hash('sha256', JSON.stringify([...terms, oidc?.require_email_verified, value, target]))
  return {
    marks: new Set([...entries].map(([value, target]) => mark(value, target))),
    of: (values) => {
      const matching = [...new Set(values)].flatMap((value) => {
        const target = entries.get(value)
        return target === undefined ? [] : [[value, target] as const]
      })
      const named = matching.filter(([, target]) => !isOperatorSet(target))
      const counting = named.length > 0 ? named : matching
      const marks = counting.map(([value, target]) => mark(value, target))
      const [operator, ...others] = new Set(named.map(([, target]) => target))
      if (others.length > 0) return 'ambiguous'
      if (operator !== undefined) return { marks, operator }
      return matching.length === 0 ? null : { marks, capabilities: allOf(matching) }
    },
    namesOperator: (operator) => !isOperatorSet(operator) && targets.includes(operator),
    grantsCapability: (capability) =>
      targets.some(
        (target) =>
          isOperatorSet(target) && (OPERATOR_SETS[target] as readonly string[]).includes(capability),
      ),
  }
}

function allOf(matching: readonly (readonly [value: string, target: string])[]): readonly AdminCapability[] {
  const held = new Set<string>(
    matching.flatMap(([, target]) => (isOperatorSet(target) ? OPERATOR_SETS[target] : [])),
  )
  return ADMIN_CAPABILITIES.filter((capability) => held.has(capability))
}
