import { copyFileSync, mkdtempSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import {
  entry,
  open,
  rowsOf,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'
import { type Fault, runWithFault, withoutStrace } from '../../../support/strace.ts'

const PROGRAM = join(import.meta.dirname, '../../../support/db/append-few.ts')
const CONFIG = 'cd'.repeat(32)
/** Every call of the system, some ten minutes, where it is asked for; some of them otherwise. */
const FULL = process.env.TEST_SWEEP === 'full'
const LANES = 2
const TIMEOUT_MS = FULL ? 3_600_000 : 300_000
t.setTimeout(TIMEOUT_MS)

/** How the ledger stood before. `first`: the units of the first batch. */
interface Start {
  readonly name: string
  readonly first: number
  readonly make: (directory: string) => Promise<string>
}

const EMPTY: Start = { name: 'of an empty ledger', first: 3, make: scratchDatabase }

// After a hundred writes the writer looks how long the log is, and moves it into the database.
const GROWN: Start = {
  name: 'with a log that is due to be moved into the database',
  first: 100,
  make: async (directory) => {
    const made = await scratchDatabase(mkdtempSync(join(directory, 'made-')))
    const file = join(directory, 'sallyport.db')
    withRaw(made, (db) => {
      db.pragma('wal_autocheckpoint = 0')
      const write = db.prepare("insert or replace into settings values ('filler', ?, 'now')")
      for (let times = 0; times < 400; times += 1) write.run(String(times).repeat(20_000))
      // While it is open, or the last one to close it would move the log.
      for (const end of ['', '-wal']) copyFileSync(made + end, file + end)
    })
    return file
  },
}

/** What the program said of a unit. */
interface Told {
  readonly id: string
  /** Present where the row was acknowledged. */
  readonly hash?: string
  readonly seq?: number
  /** Where it was refused: whether the ledger had failed for good. */
  readonly failed?: boolean
}

/** The last line may be cut off. */
const toldIn = (out: string): readonly Told[] =>
  out
    .split('\n')
    .filter((line) => line.endsWith('}'))
    .map((line) => JSON.parse(line))

/** Starts on what is left, and returns every way in which it is not what it should be. */
async function wrongAfter(file: string, told: readonly Told[]): Promise<readonly string[]> {
  const next = await open(file)
  await next.recover(1_800_000_000_000, CONFIG)
  await next.commit({ entries: [entry({ request_id: 'next' })] })
  await next.close()
  // Each has an outcome of the same id by now.
  const decisions = rowsOf(file).filter(({ status }) => status === 'allowed')
  const stored = new Map(decisions.map((row) => [row.request_id, `${row.seq} ${row.row_hash}`]))
  const verdict = await verifyFile(file)
  const keys = withRaw(file, (db) =>
    db.prepare<[], string>("select key from settings where key <> 'filler'").pluck().all(),
  )
  const halves = [...stored.keys()]
    .filter((id) => id !== 'next' && Number(id?.split('-')[1]) % 3 === 1)
    .filter((id) => !keys.includes(id ?? ''))
  return [
    ...(verdict.ok ? [] : [`does not verify: ${JSON.stringify(verdict)}`]),
    ...told
      .filter(({ id, seq, hash }) => hash !== undefined && stored.get(id) !== `${seq} ${hash}`)
      .map(({ id }) => `${id} was acknowledged and is not there`),
    ...told
      .filter(({ id, failed }) => failed === false && stored.has(id))
      .map(({ id }) => `${id} was refused by a ledger that goes on, and is there`),
    ...halves.map((id) => `${id} has its row without its statement`),
    ...keys.filter((key) => !stored.has(key)).map((key) => `${key} has its statement without its row`),
  ]
}

interface Sweep {
  readonly start: Start
  readonly call: string
  readonly fault: Fault
  /** How many calls apart, where not every one is tried. */
  readonly apart: number
}

/** Injects the fault at one call after the other, until a run makes fewer. Resolves with how many were injected. */
async function sweep(t: Test, { start, call, fault, apart }: Sweep): Promise<number> {
  const step = FULL ? 1 : apart
  for (let nth = 1, injections = 0; ; nth += step, injections += 1) {
    const directory = mkdtempSync(join(t.testdirName, 'run-'))
    const file = await start.make(directory)
    const place = { call, fault, nth, log: join(directory, 'log') }
    const { injected, out } = await runWithFault([PROGRAM, file, String(start.first)], place)
    const told = toldIn(out)
    const wrong = await wrongAfter(file, told)
    if (wrong.length > 0) t.fail(`${fault} at ${call} number ${nth}: ${wrong.join('; ')}`)
    if (injected) continue
    const acknowledged = told.filter(({ hash }) => hash !== undefined).length
    t.equal(
      acknowledged,
      start.first + 6,
      `${call} ${fault}: the run without a fault, behind ${injections} with one`,
    )
    return injections
  }
}

/** Every system call by which the writer changes a file, as `strace` of a run without a fault shows them. */
const SWEEPS: readonly Sweep[] = (['KILL', 'EIO', 'ENOSPC'] as const).flatMap((fault) => [
  { start: EMPTY, call: 'pwrite64', fault, apart: 17 },
  { start: EMPTY, call: 'fsync', fault, apart: 5 },
  { start: EMPTY, call: 'ftruncate', fault, apart: 1 },
  { start: EMPTY, call: 'unlink', fault, apart: 1 },
  { start: GROWN, call: 'pwrite64', fault, apart: 90 },
  { start: GROWN, call: 'fsync', fault, apart: 3 },
])
// What the process says to its other threads and on standard output goes through this one: no disk, so it cannot fail
// like one.
const BETWEEN: Sweep = { start: EMPTY, call: 'write', fault: 'KILL', apart: 15 }

t.test(
  'F-01 F-03 F-04 a kill, an I/O error or a full disk at any write of the ledger loses no acknowledged row',
  { skip: withoutStrace(), timeout: TIMEOUT_MS },
  async (t) => {
    t.testdir({})
    const left = [...SWEEPS, BETWEEN]
    const lane = async (): Promise<void> => {
      for (let one = left.shift(); one !== undefined; one = left.shift()) {
        const injections = await sweep(t, one)
        t.ok(injections > 0, `${one.fault} at ${one.call} ${one.start.name}`)
      }
    }
    await Promise.all(Array.from({ length: LANES }, lane))
  },
)
