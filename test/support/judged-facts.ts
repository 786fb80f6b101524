import { setFlagsFromString } from 'node:v8'
import { runInThisContext } from 'node:vm'
import { Pipeline } from '../../plugins/plugin.ts'

/** The facts of one call when it was decided. */
export interface JudgedFacts {
  readonly names: readonly string[]
  /** False: V8 keeps them in a hash table, because they are too many, and each reader of one pays for it. */
  readonly isFast: boolean
}

/** Returns the facts of each call that this process judges meanwhile. */
export async function judgedFacts(call: () => Promise<unknown>): Promise<readonly JudgedFacts[]> {
  setFlagsFromString('--allow-natives-syntax')
  // Proven by the text of the function.
  const isFast = runInThisContext('(facts) => %HasFastProperties(facts)') as (facts: object) => boolean
  const judged: JudgedFacts[] = []
  // oxlint-disable-next-line typescript/unbound-method -- it is applied to each pipeline that is asked
  const { decide } = Pipeline.prototype
  Pipeline.prototype.decide = async function (...given) {
    const decision = await decide.apply(this, given)
    judged.push({ names: Object.keys(decision.facts), isFast: isFast(decision.facts) })
    return decision
  }
  await call().finally(() => {
    Pipeline.prototype.decide = decide
  })
  return judged
}
