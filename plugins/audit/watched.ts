import type { CheckVerdict } from '../facts.ts'

/** Called with the verdict of each check that only watches a call, once the call is recorded: for metrics. */
export type ShadowMetrics = (check: string, verdict: CheckVerdict) => void

/** Makes a function that reports the watchers' verdicts on a call, in their order. */
export function shadowReporter(
  report: ShadowMetrics,
  checks: readonly { readonly name: string; readonly shadow: boolean }[],
) {
  const names = checks.filter(({ shadow }) => shadow).map(({ name }) => name)
  return (verdicts: readonly CheckVerdict[]): void => {
    for (const [index, verdict] of verdicts.entries()) report(names[index] ?? '', verdict)
  }
}
