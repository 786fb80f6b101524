import { NotRecomputable } from '../authority/call.ts'
import type { RecordedCheck } from '../authority/decision.ts'
import type { CheckDigest, ConfigurationCheck } from '../authority/states.ts'

interface JudgedChecks {
  /** The checks that the call was judged by, in order. */
  readonly known: readonly ConfigurationCheck[]
  /** The known checks that its row says were asked, in their order. */
  readonly asked: readonly RecordedCheck[]
}

/**
 * Why a check refuses a call, or null. Its recorded verdict counts, even of a shadow. Throws {@link
 * NotRecomputable} if it was not asked, by that code and options.
 */
export function refusalOfCheck(check: ConfigurationCheck, judged: JudgedChecks): string | null {
  const verdict = verdicts(judged).find(([one]) => isSame(one, check))?.[1]
  if (verdict === undefined) throw new NotRecomputable(`the check ${check.name} was never asked`)
  if (verdict === 'pass') return null
  return verdict === 'failed' ? 'plugin_failed' : 'policy_denied'
}

/** Returns whether two configurations have the same checks, and the same of them judge. */
export const hasSameChecks = (
  some: readonly ConfigurationCheck[],
  others: readonly ConfigurationCheck[],
): boolean =>
  some.length === others.length &&
  some.every((check, at) => {
    const other = others[at]
    return other !== undefined && isSame(check, other) && check.shadow === other.shadow
  })

const isSame = (one: ConfigurationCheck, other: ConfigurationCheck): boolean =>
  one === other ||
  (one.name === other.name &&
    one.digest === other.digest &&
    one.options !== null &&
    one.options === other.options)

function verdicts({ known, asked }: JudgedChecks): readonly (readonly [ConfigurationCheck, string])[] {
  let from = 0
  return asked.flatMap((said) => {
    const at = known.findIndex((check, index) => index >= from && isNamed(check, said))
    const check = known[at]
    if (!check) return []
    from = at + 1
    return [[check, said.verdict] as const]
  })
}

const isNamed = (check: CheckDigest, said: CheckDigest): boolean =>
  check.name === said.name && check.digest === said.digest && check.shadow === said.shadow
