import type { Test } from 'tap'

/** Makes calls at once on a budget for ten, and has exactly ten of them pass. `call` resolves with a status. */
export async function exactlyTen(
  t: Test,
  count: number,
  call: (n: number) => Promise<number>,
): Promise<void> {
  const statuses = await Promise.all(Array.from({ length: count }, (_, n) => call(n)))
  const counts = Map.groupBy(statuses, (status) => status)
  t.same([...counts].map(([status, all]) => [status, all.length]).toSorted(), [
    [200, 10],
    [429, count - 10],
  ])
}
