import type { Test } from 'tap'
import type { Ran } from '../../run.ts'
import { PYTHON, withoutPython } from '../../verifiers.ts'
import { type Judge, ourJudge, pythonJudge } from './judge.ts'

/** What both verifiers say of one case. `theirs`: null where Python is not installed. */
export interface Verdicts {
  readonly ours: Ran
  readonly theirs: Ran | null
}

/** Makes the function that has both verifiers judge a case. `ours` alone: for what only we read. */
export function judges(t: Test): {
  readonly both: (args: readonly string[]) => Promise<Verdicts>
  readonly ours: Judge
} {
  const ours = ourJudge(t)
  const theirs = withoutPython ? null : pythonJudge(t, PYTHON)
  const both = async (args: readonly string[]): Promise<Verdicts> => {
    const [one, other] = await Promise.all([ours(args), theirs?.(args) ?? null])
    return { ours: one, theirs: other }
  }
  return { both, ours }
}
