import t from 'tap'
import { allPages } from '../../../db/support/pages.ts'

t.test('A7: a list is read in pages with a pause between two, each row once', async (t) => {
  for (const [length, most, pauses] of [
    [0, undefined, 0],
    [99, undefined, 0],
    [100, undefined, 1],
    [250, undefined, 2],
    [250, 250, 2],
    [250, 120, 1],
    [250, 100, 0],
    [250, 1, 0],
  ] as const) {
    const rows = Array.from({ length }, (_, n) => ({ n }))
    let paused = 0
    const found = await allPages(
      async (after: { n: number } | undefined, limit) => {
        t.ok(limit <= 100)
        const from = after ? after.n + 1 : 0
        return rows.slice(from, from + limit)
      },
      async () => {
        paused += 1
      },
      most,
    )
    t.same(found, rows.slice(0, most), `${length} rows, at most ${most}`)
    t.equal(paused, pauses)
  }
})
