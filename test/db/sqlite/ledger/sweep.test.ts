import { copyFileSync, mkdtempSync, readFileSync } from 'node:fs'
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
import { sweepPlaces, WHOLE_SWEEP } from '../../../support/sweep-places.ts'

const PROGRAM = join(import.meta.dirname, '../../../support/db/append-few.ts')
const CONFIG = 'cd'.repeat(32)
const LANES = 2
const TIMEOUT_MS = WHOLE_SWEEP ? 3_600_000 : 300_000
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
  /** The calls that are tried, but in a whole sweep: some ten minutes. */
  readonly tried: number
}

/** Every system call by which the writer changes a file, as `strace` of a run without a fault shows them. */
const SWEEPS: readonly Sweep[] = (['KILL', 'EIO', 'ENOSPC'] as const).flatMap((fault) => [
  { start: EMPTY, call: 'pwrite64', fault, tried: 2 },
  { start: EMPTY, call: 'fsync', fault, tried: 2 },
  { start: EMPTY, call: 'ftruncate', fault, tried: 1 },
  { start: EMPTY, call: 'unlink', fault, tried: 1 },
  { start: GROWN, call: 'pwrite64', fault, tried: 1 },
  { start: GROWN, call: 'fsync', fault, tried: 1 },
])
// What the process says to its other threads and on standard output goes through this one: no disk, so it cannot fail
// like one.
const BETWEEN: Sweep = { start: EMPTY, call: 'write', fault: 'KILL', tried: 2 }
const CALLS = [...new Set([...SWEEPS, BETWEEN].map(({ call }) => call))]
/** More calls than a run makes, and not more than strace counts. */
const NONE = 65_535

/** Runs from a start with a fault at one call. */
async function struck(t: Test, start: Start, call: string, fault: Fault, nth: number) {
  const directory = mkdtempSync(join(t.testdirName, 'run-'))
  const file = await start.make(directory)
  const log = join(directory, 'log')
  const { injected, out } = await runWithFault([PROGRAM, file, String(start.first)], {
    call,
    fault,
    nth,
    log,
  })
  const told = toldIn(out)
  const wrong = await wrongAfter(file, told)
  if (wrong.length > 0) t.fail(`${fault} at ${call} number ${nth}: ${wrong.join('; ')}`)
  if (!injected) {
    const acknowledged = told.filter(({ hash }) => hash !== undefined).length
    t.equal(acknowledged, start.first + 6, `${call} ${start.name}: the run without a fault`)
  }
  return { injected, log }
}

/** Counts the calls of each kind that the thread makes which makes most of them, in a run without a fault. */
async function counted(t: Test, start: Start): Promise<ReadonlyMap<string, number>> {
  const { log } = await struck(t, start, CALLS.join(), 'EIO', NONE)
  const made = readFileSync(log, 'utf8').matchAll(/^(\d+) +(\w+)\(/gm)
  const most = new Map<string, number>()
  for (const [thread, calls] of Map.groupBy(made, ([, thread]) => thread))
    for (const [call, all] of Map.groupBy(calls, ([, , call = '']) => call))
      if (thread !== undefined) most.set(call, Math.max(most.get(call) ?? 0, all.length))
  return most
}

/** Injects the fault at calls one after the other. Resolves with how many were injected. */
async function sweep(t: Test, { start, call, fault, tried }: Sweep, calls: number): Promise<number> {
  let injections = 0
  for (const nth of sweepPlaces(Math.ceil(calls / tried))) {
    if (!WHOLE_SWEEP && nth > calls) break
    // How many there are of some depends on what comes first: a run may not reach a place.
    let place = nth
    while (place > 0 && !(await struck(t, start, call, fault, place)).injected)
      place = WHOLE_SWEEP ? 0 : Math.floor(place / 2)
    if (place === 0) break
    injections += 1
  }
  return injections
}

t.test(
  'F-01 F-03 F-04 a kill, an I/O error or a full disk at any write of the ledger loses no acknowledged row',
  { skip: withoutStrace(), timeout: TIMEOUT_MS },
  async (t) => {
    t.testdir({})
    const calls = new Map([
      [EMPTY, await counted(t, EMPTY)],
      [GROWN, await counted(t, GROWN)],
    ])
    const left = [...SWEEPS, BETWEEN]
    const lane = async (): Promise<void> => {
      for (let one = left.shift(); one !== undefined; one = left.shift()) {
        const injections = await sweep(t, one, calls.get(one.start)?.get(one.call) ?? 0)
        t.ok(injections > 0, `${one.fault} at ${one.call} ${one.start.name}: ${injections}`)
      }
    }
    await Promise.all(Array.from({ length: LANES }, lane))
  },
)
