import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { BY_A_TENTH } from '../../support/lanes.ts'
import { chooser, type Edit } from '../../support/sweep/edits/edit.ts'
import { honestCases } from '../../support/sweep/edits/honest.ts'
import { KEPT_EDITS } from '../../support/sweep/edits/kept.ts'
import { LINE_EDITS } from '../../support/sweep/edits/lines.ts'
import { RECEIPT_EDITS } from '../../support/sweep/edits/receipts.ts'
import { REWRITES } from '../../support/sweep/edits/rewrites.ts'
import { asking } from '../../support/sweep/judging/asking.ts'
import { judges } from '../../support/sweep/judging/judges.ts'
import { ring, type SealedLog, sealedLog } from '../../support/sweep/life/log.ts'
import { plansOf } from '../../support/sweep/life/steps.ts'
import { PACK_EDITS } from '../../support/sweep/packs/packs.ts'
import { WHOLE_SWEEP } from '../../support/sweep-places.ts'

// The same seed makes the same histories and the same edits: SWEEP_SEED=… node test/scripts/verifying/sweep.test.ts.
// SWEEP_HONEST and SWEEP_CASES say how many, TEST_SWEEP=full ten times what the short lane tries.
const SEED = Number(process.env.SWEEP_SEED ?? (BY_A_TENTH ? 1 : Date.now() % 2 ** 31))
const SHARE = WHOLE_SWEEP ? 10 : BY_A_TENTH ? 1 : 4
const HONEST = Number(process.env.SWEEP_HONEST ?? 30 * SHARE)
const CASES = Number(process.env.SWEEP_CASES ?? 150 * SHARE)
/** Histories that edits are made of: short ones, and a few with tiles of two levels. */
const LOGS = 6 * SHARE
const LONG = WHOLE_SWEEP ? 3 : 1

t.setTimeout(7_200_000)
const { both } = judges(t)
// Of this process alone: another seed may run beside it.
const directory = mkdtempSync(join(tmpdir(), 'sallyport-sweep-'))
t.teardown(() => rmSync(directory, { recursive: true, force: true }))
const ask = asking(directory, both)
const keys = ring()
t.comment(`SWEEP_SEED=${SEED}`)

/** What went wrong, the first of each kind. */
function reporting(t: Pick<Test, 'fail'>) {
  const told = new Set<string>()
  return (name: string, sentence: string, again: string): void => {
    if (told.has(name)) return
    told.add(name)
    t.fail(`${name}: ${sentence}`, { again })
  }
}

await t.test('an honest history raises no alarm, whatever of it is verified and what was kept', async (t) => {
  const report = reporting(t)
  let count = 0
  for (const [index, plan] of plansOf(SEED, HONEST, [5, 60]).entries()) {
    const log = sealedLog(plan, keys)
    for (const one of await honestCases(log, chooser(SEED + index), keys)) {
      const wrong = await ask(one)
      if (wrong !== null) report(`an honest history of ${plan.engine}`, wrong, `history ${index}`)
    }
    count += 1
  }
  t.comment(`${count} honest histories`)
  t.ok(count >= HONEST)
})

await t.test(
  'every edit of rows, checkpoints, packs and receipts is found, with the right exit code',
  async (t) => {
    const report = reporting(t)
    const edits: readonly Edit[] = [
      ...LINE_EDITS,
      ...REWRITES,
      ...KEPT_EDITS,
      ...RECEIPT_EDITS,
      ...PACK_EDITS,
    ]
    const short = plansOf(SEED + 1, LOGS, [15, 70]).map((plan) => sealedLog(plan, keys))
    const long = plansOf(SEED + 2, LONG, [700, 800]).map((plan) => sealedLog(plan, keys))
    const made = new Set<string>()
    let cases = 0
    for (let round = 0; cases < CASES; round += 1) {
      for (const [index, edit] of edits.entries()) {
        if (cases >= CASES && made.size === edits.length) break
        const choose = chooser(SEED + round * edits.length + index)
        const log = choose.below(20) === 0 ? choose.one(long) : choose.one(short)
        const found = await edit.make(log as SealedLog, choose, keys)
        if (!found || found.length === 0) continue
        made.add(edit.name)
        // A round asks one of an edit's cases, as others do the others.
        const one = found[round % found.length]
        if (!one) continue
        cases += 1
        const wrong = await ask(one)
        if (wrong !== null) report(edit.name, wrong, `round ${round}, edit ${index}`)
      }
    }
    t.comment(`${cases} edits of ${made.size} kinds`)
  },
)
