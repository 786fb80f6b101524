import fc from 'fast-check'
import t from 'tap'
import { differences, failureOf, faultsOf } from '../../../support/rehearsal/faults.ts'
import { history, play } from '../../../support/rehearsal/history.ts'
import { rehearsalStage } from '../../../support/rehearsal/stage.ts'
import { eventually } from '../../../support/settled.ts'

/** Thousands take an hour: `REHEARSAL_HISTORIES=3000`. `REHEARSAL_SEED` brings those of another run back. */
const HISTORIES = Number(process.env.REHEARSAL_HISTORIES ?? 8)
/** The histories of one gateway: a rehearsal reads every change from the first one on. */
const AT_ONE = 100
const MANY = 50
const TIMEOUT_MS = 60_000 + 5_000 * HISTORIES
t.setTimeout(TIMEOUT_MS)

for (let begun = 0; begun < HISTORIES; begun += AT_ONE)
  await t.test(
    'docs/rehearsal.md#rule: the calls of random histories, sent again with the changes made, come to what was predicted, call by call',
    { timeout: TIMEOUT_MS },
    async (t) => {
      const stage = await rehearsalStage(t)
      const begins = Date.now()
      const seed = Number(process.env.REHEARSAL_SEED ?? Date.now() % 2 ** 31) + begun
      t.comment(`seed ${seed}`)
      const numRuns = Math.min(AT_ONE, HISTORIES - begun)
      const piles = { unchanged: 0, newly_refused: 0, newly_allowed: 0, undecidable: 0 }
      for (const drawn of fc.sample(history, { numRuns, seed })) {
        const played = await play(stage, drawn)
        const faults = faultsOf(drawn, played)
        if (faults.length > 0) t.fail(faults.join('; '), failureOf(drawn, played))
        const { unchanged, totals } = played.predicted
        for (const [pile, count] of Object.entries({ unchanged, ...totals }))
          piles[pile as keyof typeof piles] += Number(count)
      }
      // What refusals were summarised as is written when their minute is over: maybe between the two questions.
      const nothing = async () => differences(await stage.rehearse([], begins), await stage.counted())
      t.same(await eventually(nothing, (faults) => faults.length === 0), [], 'no change, no difference')
      t.comment(JSON.stringify(piles))
      // A few histories may be such that nothing is refused, or that little can be decided. Many are not.
      if (numRuns < MANY) return
      t.ok(piles.newly_refused > 0 && piles.newly_allowed > 0, 'something was refused, and something allowed')
      const decided = piles.unchanged + piles.newly_refused + piles.newly_allowed
      t.ok(decided > 2 * piles.undecidable, 'most was decided')
    },
  )
