import { type Call, Contradiction } from './call.ts'
import type { Authority, Decision } from './decision.ts'
import type { CheckDigest, ConfigurationState } from './states.ts'

/**
 * Demands that the checks a row names are those of its configuration, in that order (docs/ledger.md#rule, 8).
 * Some may be left out: those behind one that refused, and shadows.
 */
export function matchChecks({ checks: asked }: Authority, { checks: known }: ConfigurationState): void {
  let from = 0
  for (const check of asked) {
    // By their places: two may have one name.
    const at = known.findIndex((one, index) => index >= from && isSame(one, check))
    if (at < 0) throw new Contradiction(`names the check ${check.name}, which its configuration has not so`)
    from = at + 1
  }
}

const isSame = (a: CheckDigest, b: CheckDigest): boolean =>
  a.name === b.name && a.digest === b.digest && a.shadow === b.shadow

/** Returns whether the row says that a check of its configuration refused. It must say what that check said. */
export function isRefusedByCheck(
  { refusedBy }: Decision,
  { checks: asked }: Authority,
  { checks: known }: ConfigurationState,
): boolean {
  if (!known.some(({ name }) => name === refusedBy)) return false
  if (asked.some((check) => check.name === refusedBy && isJudging(check) && check.verdict !== 'pass'))
    return true
  throw new Contradiction(`does not say that the check ${refusedBy} refused`)
}

/** Returns what refuses a call whose checks were all to be asked, or null. */
export function refusalOfChecks({ decision, authority, configuration }: Call): string | null {
  if (!decision.allowed) return null
  const [asked, known] = [authority.checks.filter(isJudging), configuration.checks.filter(isJudging)]
  // Proven by matchChecks: those that are named are of the configuration, each once.
  if (asked.length < known.length) throw new Contradiction('does not say what every check said')
  const refused = asked.find(({ verdict }) => verdict !== 'pass')
  return refused ? `the check ${refused.name}` : null
}

const isJudging = ({ shadow }: CheckDigest): boolean => !shadow
