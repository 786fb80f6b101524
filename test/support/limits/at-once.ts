import type { Test } from 'tap'

/** Makes calls at once on a budget for ten, and has exactly ten of them pass. `call` resolves with a status. */
export async function exactlyTen(
  t: Test,
  count: number,
  call: (n: number) => Promise<number>,
): Promise<void> {
  const statuses = await Promise.all(Array.from({ length: count }, (_, n) => call(n)))
  const passed = statuses.filter((status) => status === 200)
  const refused = statuses.filter((status) => status === 429)
  t.same([passed.length, refused.length], [10, count - 10])
}
