import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import t from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { statesUpTo } from '../../../db/ledger/tree/states.ts'
import { currentTree } from '../../../db/ledger/tree/store.ts'
import { archiveOptions, daysOf } from '../../../proxy/archive/options.ts'
import { archiveNext, endOfNext } from '../../../proxy/archive/schedule.ts'
import { recordState, recordStates } from '../../../proxy/proofs/state-recorder.ts'
import { openArchivedLog, recordCalls } from '../../support/archive.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { note } from '../../support/db/history.ts'
import { eventually } from '../../support/settled.ts'

const DAY_MS = 86_400_000
const FIRST = Date.parse('2026-01-01T03:00:00.000Z')
const NEVER = new AbortController().signal

const stateOf = (day: number) => ({ leaf: 256 * (day + 1), at: new Date(FIRST + day * DAY_MS).toISOString() })

t.test(
  'a segment ends with the state of a day that is old enough, by the clock and by the days since',
  (t) => {
    const states = Array.from({ length: 10 }, (_, day) => stateOf(day))
    const end = (from: number, keep: number, nowDay: number, of = states) =>
      endOfNext(of, from, keep, FIRST + nowDay * DAY_MS)
    t.equal(end(0, 7, 9), 256, 'the first day')
    t.equal(end(256, 7, 9), 512, 'the next one')
    t.equal(end(512, 7, 9), 768, 'the last that may go')
    t.equal(end(768, 7, 9), null, 'six days are not seven')
    t.equal(end(0, 7, 6.9), null, 'the clock says that it is too young')
    t.equal(end(0, 30, 400), null, 'a clock a year ahead: only nine days have been seen')
    t.equal(end(0, 1, 400, states.slice(0, 1)), null, 'nothing was said since')
    t.equal(end(2_560, 1, 400), null, 'all of it is archived')
    t.equal(end(0, 1, 400, []), null, 'no state at all')
    t.equal(end(0, daysOf('99999y'), 400), null, 'as long as there are people')
    const sized = (days: number, rows: number, nowDay = 99) =>
      endOfNext(states, 0, 2, FIRST + nowDay * DAY_MS, { days, rows })
    t.equal(sized(3, 1_000_000), 768, 'three days')
    t.equal(sized(3, 1_000_000, 3.9), null, 'the third of them is too young')
    t.equal(sized(3, 600), 512, 'the rows come first')
    t.equal(sized(3, 100), 256, 'no state was said sooner')
    t.equal(sized(9, 1_000_000), null, 'no two days are behind it')
    const twice = [stateOf(0), { ...stateOf(0), leaf: 300 }, { ...stateOf(1), leaf: 512 }]
    t.equal(end(0, 2, 400, twice), null, 'two states of one day are one')
    t.end()
  },
)

t.test('rows move a day at a time, and what is young stays', async (t) => {
  const directory = t.testdir({ archive: {} })
  const [folder, url] = [join(directory, 'archive'), await databaseUrl(directory)]
  const log = await openArchivedLog(t, url)
  let now = FIRST
  const given = {
    ...log,
    folder,
    clock: () => now,
    location: databaseLocation(url),
    authority: { rootPem: '', intermediatePem: '', rotation: null },
    anchors: () => [],
    log: pino({ level: 'silent' }),
  }
  for (let day = 0; day < 4; day += 1, now += DAY_MS) {
    await log.ledger.commit({ entries: Array.from({ length: 256 }, (_, n) => note('audit.reviewed', { n })) })
    await log.sealer.seal()
    const tree = await currentTree(log.database.kysely)
    if (!tree) throw new Error('there is no tree')
    await recordState(given, { tree: tree.tree, leaf: tree.size - (tree.size % 256) }, NEVER)
    await log.sealer.seal()
  }
  const moved: boolean[] = []
  for (let turn = 0; turn < 3; turn += 1) moved.push(await archiveNext(given, 2, NEVER))
  t.same(moved, [true, true, false])
  t.same(readdirSync(folder).toSorted(), ['0-255.zip', '256-511.zip', 'LOG'])
})

t.test('a state is said after so many rows, at whole tiles, and not only once a day', async (t) => {
  const log = await openArchivedLog(t, await databaseUrl(t.testdir()))
  await recordCalls(log, 600)
  await log.sealer.seal()
  const tree = await currentTree(log.database.kysely)
  if (!tree) throw new Error('there is no tree')
  const task = recordStates({ ...log, rows: () => 600, log: pino({ level: 'silent' }) })
  const said = () => statesUpTo(log.database, tree.tree, tree.size, 9)
  for (const leaves of [[512], [1_024, 512]]) {
    // One that has just ended may count as under way for a moment.
    const ran = () => task.run().then(said)
    const states = await eventually(ran, ({ length }) => length === leaves.length)
    t.same(
      states.map(({ leaf }) => leaf),
      leaves,
    )
  }
  await task.run()
  await task.stop()
  t.equal((await said()).length, 2, 'the rest is for the day')
})

t.test('odd options are refused in a sentence', (t) => {
  const sound = { keep: '90d', to: '/var/lib/sallyport/archive' }
  const segment = { days: 1, rows: 1_000_000 }
  t.same(archiveOptions.parse(sound), { ...sound, at: '03:00', confirm: false, segment })
  t.same(archiveOptions.parse({ ...sound, segment: { days: 7 } }).segment, { ...segment, days: 7 })
  t.same(['1d', '2w', '7y'].map(daysOf), [1, 14, 2_555])
  const odd = [
    ...['0', '0d', '-1d', '90', '90 d', 90, '1h', ''].map((keep) => ({ ...sound, keep })),
    ...['archive', './archive', ''].map((to) => ({ ...sound, to })),
    ...['0', '7', '-7y', 7].map((forget) => ({ ...sound, forget })),
    ...['yes', 1, null].map((confirm) => ({ ...sound, confirm })),
    ...['3:00', '24:00', '03:60', '03'].map((at) => ({ ...sound, at })),
    { ...sound, more: 1 },
    ...[{ days: 0 }, { rows: 255 }, { rows: 1e9 }, { days: 1.5 }, { hours: 1 }, null].map((segment) => ({
      ...sound,
      segment,
    })),
    { keep: '90d' },
    { to: '/a' },
  ]
  for (const options of odd) t.notOk(archiveOptions.safeParse(options).success, JSON.stringify(options))
  t.end()
})
