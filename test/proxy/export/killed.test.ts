import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { readHeads } from '../../../db/ledger/cursors/heads.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { entry } from '../../support/db/scratch-ledger.ts'

t.setTimeout(3_600_000)

const PROGRAM = join(import.meta.dirname, '../../support/export/follow-until-killed.ts')
/** A thousand: `TEST_KILLS=1000 node test/run.ts test/proxy/export/killed.test.ts`. */
const KILLS = Number(process.env.TEST_KILLS ?? 24)
/** The rows that come before each start. */
const ROWS = 700
/** The steps of the first page and of the second. */
const STEPS = 8

const run = (...args: readonly string[]): Promise<NodeJS.Signals | null> =>
  new Promise((resolve, reject) =>
    execFile(process.execPath, [PROGRAM, ...args], (error) => {
      if (!error) resolve(null)
      else if (error.signal === 'SIGKILL') resolve(error.signal)
      else reject(error)
    }),
  )

await t.test(
  'docs/exports.md#cursors: killed at each step of a page, each row arrives, in order',
  async (t) => {
    const directory = t.testdir({})
    const url = await databaseUrl(directory)
    const path = join(directory, 'rows.ndjson')
    let killed = 0
    for (let n = 0; n < KILLS; n += 1) {
      const database = await openDatabase(url)
      const ledger = await openLedger({ database, version: '0.7.0' })
      for (let from = 0; from < ROWS; from += 350)
        await ledger.commit({ entries: Array.from({ length: 350 }, () => entry({ detail: { n } })) })
      await ledger.close()
      await database.close()
      if ((await run(url, path, String((n % STEPS) + 1))) === 'SIGKILL') killed += 1
    }
    t.ok(killed > KILLS / 2, `${killed} of ${KILLS} were killed`)
    t.equal(await run(url, path, '0'), null, 'the last one ends by itself')
    const database = await openDatabase(url)
    const heads = new Map((await readHeads(database)).map(({ stream, head }) => [stream, head]))
    await database.close()
    const last = new Map<string, number>()
    for (const line of readFileSync(path, 'utf8').trimEnd().split('\n')) {
      const { stream, seq } = JSON.parse(line)
      const before = last.get(stream) ?? 0
      if (seq > before + 1) t.fail(`${stream}:${seq} came after ${before}`)
      last.set(stream, Math.max(before, seq))
    }
    t.same(Object.fromEntries(last), Object.fromEntries(heads), 'no row is missing at the end')
  },
)
