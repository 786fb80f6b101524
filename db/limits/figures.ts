import type { Database } from '../database.ts'
import type { PresentRules } from './present-rules.ts'
import { readUsage, usedPart } from './usage.ts'

/** The limits that figures are of: the oldest. */
const MAX_LIMITS_READ = 200
/** The limits of each principal among them whose meters are read: each is a look at as many as there are principals. */
const MAX_EACH_READ = 20
/** Readers that ask more often get what was read. ms. */
const MAX_AGE_MS = 5_000

/** Makes the function that reads how much of limits is used now, of each limit by who is nearest to its amount. */
export function limitFigures(
  database: Pick<Database, 'kysely'>,
  rules: Pick<PresentRules, 'now'>,
  clock: () => number,
) {
  const read = async (at: number) => {
    const limits = (await rules.now()).limits.slice(0, MAX_LIMITS_READ)
    const found = await readUsage(database, limits, { at, most: 1, mostEach: MAX_EACH_READ })
    return found.map(({ limit: { id, name }, meters }) => {
      const [nearest] = meters ?? []
      return { id, name, part: nearest ? usedPart(nearest) : meters && 0 }
    })
  }
  let kept: { readonly at: number; readonly figures: ReturnType<typeof read> } | null = null
  return (): ReturnType<typeof read> => {
    const at = clock()
    if (kept && Math.abs(at - kept.at) < MAX_AGE_MS) return kept.figures
    const figures = read(at)
    kept = { at, figures }
    figures.catch(() => {
      kept = null
    })
    return figures
  }
}
