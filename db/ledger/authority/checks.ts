import { type ReplayedCall, RowContradiction } from './call.ts'
import type { RecordedAuthority, RecordedDecision } from './decision.ts'
import type { CheckDigest, ConfigurationState } from './states.ts'

/**
 * Demands the checks of the row's configuration, in order (docs/ledger.md#rule, 8). Those after one that
 * refused, and shadows, may be left out.
 */
export function matchChecks(
  { checks: asked }: RecordedAuthority,
  { checks: known }: ConfigurationState,
): void {
  let from = 0
  for (const check of asked) {
    // Compared by place: two may have one name.
    const at = known.findIndex((one, index) => index >= from && isSame(one, check))
    if (at < 0)
      throw new RowContradiction(`names the check ${check.name}, which its configuration has not so`)
    from = at + 1
  }
}

const isSame = (a: CheckDigest, b: CheckDigest): boolean =>
  a.name === b.name && a.digest === b.digest && a.shadow === b.shadow

/** Tells if the row says that a check of its configuration refused, and what it said. */
export function isRefusedByCheck(
  { refusedBy }: RecordedDecision,
  { checks: asked }: RecordedAuthority,
  { checks: known }: ConfigurationState,
): boolean {
  if (!known.some(({ name }) => name === refusedBy)) return false
  if (asked.some((check) => check.name === refusedBy && isJudging(check) && check.verdict !== 'pass'))
    return true
  throw new RowContradiction(`does not say that the check ${refusedBy} refused`)
}

export function refusalOfChecks({ decision, authority, configuration }: ReplayedCall): string | null {
  if (!decision.allowed) return null
  const [asked, known] = [authority.checks.filter(isJudging), configuration.checks.filter(isJudging)]
  // Proven by matchChecks: those that are named are of the configuration, each once.
  if (asked.length < known.length) throw new RowContradiction('does not say what every check said')
  const refused = asked.find(({ verdict }) => verdict !== 'pass')
  return refused ? `the check ${refused.name}` : null
}

const isJudging = ({ shadow }: CheckDigest): boolean => !shadow
