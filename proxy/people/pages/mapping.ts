import type { PeopleOptions } from '../options.ts'

/** The user by the values of a claim: one who is enrolled, or a person's own with a set. */
export type MappedUser = { readonly user: string } | { readonly capabilities: readonly string[] }

/**
 * Finds the user for the values of a claim: the one that a value names, whatever sets others stand for; else one
 * with all that their sets hold. Null if none stands for anything, `ambiguous` if they name two users.
 */
export function mapPerson(
  { map }: Pick<PeopleOptions, 'map'>,
  values: readonly string[],
): MappedUser | 'ambiguous' | null {
  const entries = new Map(Object.entries(map))
  const matching = [...new Set(values)].flatMap((value) => entries.get(value) ?? [])
  const names = new Set(matching.filter((target) => typeof target === 'string'))
  const [user, ...others] = names
  if (others.length > 0) return 'ambiguous'
  if (user !== undefined) return { user }
  const sets = matching.filter((target) => typeof target !== 'string')
  if (sets.length === 0) return null
  return { capabilities: [...new Set(sets.flatMap(({ set }) => set))] }
}
