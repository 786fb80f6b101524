// node test/run.ts [--long | FILE or FOLDER…]: runs the tests in them, or a lane (test/support/lanes.ts), on PostgreSQL the
// tests of the lane that run on both engines, and those about PostgreSQL. Four files at once, most of them in turn in four
// processes (lanes.ts says which have one of their own); those that measure come after them, two at once, and the most exact
// one alone. What they say comes out as TAP, and where a person looks, as tap's reporter shows it
// (docs/decisions/029-tests-without-taps-loaders.md).
import { type ChildProcess, spawn } from 'node:child_process'
import { globSync, mkdtempSync, rmSync, statSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { Readable } from 'node:stream'
import t from 'tap'
import { openSqliteDatabase } from '../db/sqlite/database.ts'
import { ENGINE, MIGRATED_DATABASE, migratedDatabase } from './support/db/engine.ts'
import { isOfPostgres, testFiles } from './support/db/on-both-engines.ts'
import { COSTS } from './support/in-turn/costs.ts'
import { keepInMemory } from './support/in-turn/memory.ts'
import { type BrokenOff, type FileResult, Worker } from './support/in-turn/workers.ts'
import { ALONE, isLong, isShort, LANE, measures, needsProcess, timeoutOf } from './support/lanes.ts'
import { MADE_ONCE, MIGRATED_FILE } from './support/made-once.ts'

/** Tests wait for a third of their time: four at once keep two cores busy. Those of the long lane start more processes. */
const AT_ONCE = 4
const LONG_AT_ONCE = 3
/** Tests that measure hold on two cores beside one other, and no more. */
const MEASURING_AT_ONCE = 2
/** A file that takes longer belongs in the long lane. s. */
const LONG_S = 25
/** The time that a file may take whose tests do not ask for more (`t.setTimeout`); longer where others use the machine. s. */
const TIMEOUT_S = Number(process.env.TAP_TIMEOUT ?? 120)

/** It writes what a file cost that has a process of its own. */
const WHOLE_COST = join(import.meta.dirname, 'support/in-turn/whole-cost.ts')

const [, , ...asked] = process.argv
const inLane = asked.length === 0 || asked[0] === '--long'
const empty = inLane ? [] : asked.filter((path) => testsIn(path).length === 0)
if (empty.length > 0) {
  process.stderr.write(`there is no test in ${empty.join(', ')}\n`)
  process.exit(1)
}
const files = inLane
  ? laneOf(asked.length > 0)
  : [...new Set(asked.flatMap(testsIn).map((file) => relative('', file)))]

t.setTimeout(0)
if (process.stdout.isTTY) t.pipe(spawn('tap', ['-'], { stdio: ['pipe', 'inherit', 'inherit'] }).stdin)
const running = new Set<ChildProcess>()
// Whoever ends this ends them.
for (const signal of ['SIGHUP', 'SIGINT', 'SIGTERM'] as const)
  process.once(signal, () => {
    for (const child of running) child.kill(signal)
    process.exit(128 + constants.signals[signal])
  })
keepInMemory()
const scratch = mkdtempSync(join(tmpdir(), 'sallyport-run-'))
process.once('exit', () => rmSync(scratch, { recursive: true, force: true }))
await (await openSqliteDatabase(join(scratch, MIGRATED_FILE))).close()
// Without a server for all files each has one of its own.
const migrated = ENGINE === 'postgres' && process.env.TEST_DATABASE_URL ? await migratedDatabase() : undefined
const env = {
  ...process.env,
  TAP_TIMEOUT: String(TIMEOUT_S),
  [LANE]: asked.length === 0 ? 'short' : undefined,
  [MADE_ONCE]: scratch,
  [MIGRATED_DATABASE]: migrated,
}
const slow: string[] = []
const alone = files.filter((file) => ALONE.includes(file))
const measuring = files.filter((file) => !alone.includes(file) && measures(file))
const together = files.filter((file) => ![...measuring, ...alone].includes(file))
const atOnce = asked[0] === '--long' ? LONG_AT_ONCE : AT_ONCE
await runAll(
  together.filter((file) => !isOfPostgres(file)),
  atOnce,
)
await runAll(together.filter(isOfPostgres), atOnce)
await runAll(measuring, MEASURING_AT_ONCE)
await runAll(alone, 1)
t.end()
if (slow.length > 0 && asked.length === 0)
  process.stderr.write(`too slow for the short lane (test/support/lanes.ts): ${slow.join(', ')}\n`)

/** Runs files, some at once. */
async function runAll(all: readonly string[], atOnce: number): Promise<void> {
  const waiting = [...all]
  t.jobs = atOnce
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      let worker: Worker | null = null
      for (let file = waiting.shift(); file !== undefined; file = waiting.shift())
        if (all.length === 1 || needsProcess(file)) await run(file)
        else worker = await runInTurn(file, worker ?? begun(file))
      if (worker) await end(worker)
    }),
  )
}

/** The environment of a file, and of those after it in its process. A test about PostgreSQL has a server of its own. */
function envOf(file: string): NodeJS.ProcessEnv {
  const none = { TEST_ENGINE: undefined, TEST_DATABASE_URL: undefined, [MIGRATED_DATABASE]: undefined }
  return isOfPostgres(file) ? { ...env, ...none } : env
}

function begun(file: string): Worker {
  // By that variable tap has its loader in whatever is started.
  const worker = new Worker({ ...envOf(file), NODE_OPTIONS: undefined })
  watch(worker.child)
  return worker
}

/** Runs a file in a worker. Returns the worker if it can take another one. */
async function runInTurn(file: string, worker: Worker): Promise<Worker | null> {
  const result = await worker.run(file, timeoutOf(file, TIMEOUT_S * 1_000))
  if ('reason' in result) {
    // What was its file's doing is seen again; all else is said here, and fails the run.
    await run(file)
    brokenOff(result)
    return null
  }
  await say(file, result)
  if (!worker.isSpent(result)) return worker
  if (!result.timedOut) await end(worker)
  return null
}

async function say(file: string, { ok, tap, ms }: FileResult): Promise<void> {
  const seconds = Math.round(ms / 1_000)
  if (seconds > LONG_S) slow.push(`${file} (${seconds} s)`)
  const said = await t.stdin(file, {
    tapStream: Readable.from([`${tap}# time=${ms}ms\n`]),
    buffered: true,
    at: null,
  })
  if (!ok && said?.ok !== false) t.fail(`${file} failed, and no test of it`, { at: null })
}

async function end(worker: Worker): Promise<void> {
  const broken = await worker.end()
  if (broken) brokenOff(broken)
}

function brokenOff({ files: its, reason }: BrokenOff): void {
  t.fail(`a process of several files ${reason}`, { files: its, at: null })
}

function watch(child: ChildProcess): void {
  running.add(child)
  child.once('exit', () => running.delete(child))
}

function run(file: string): Promise<unknown> {
  // By that variable tap has its loader in whatever is started.
  const command = ['-c', 'unset NODE_OPTIONS; exec "$0" "$@"', process.execPath]
  const args = [...command, ...(process.env[COSTS] ? ['--import', WHOLE_COST] : []), file]
  const options = { env: envOf(file), timeout: timeoutOf(file, TIMEOUT_S * 1_000), buffered: true, at: null }
  const ended = t.spawn('/bin/sh', args, options, file)
  ended.subtest?.once('process', (child: ChildProcess) => {
    const since = performance.now()
    watch(child)
    // Once a file has taken too long, tap reads no more of what it says, and would wait for the end of it for ever.
    child.once('exit', () => child.stdout?.resume())
    child.once('close', () => {
      const s = Math.round((performance.now() - since) / 1_000)
      if (s > LONG_S) slow.push(`${file} (${s} s)`)
    })
  })
  return ended
}

function testsIn(path: string): readonly string[] {
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found?.isDirectory()) return found ? [path] : []
  return globSync(`${path}/**/*.test.ts`).toSorted()
}

function laneOf(long: boolean): readonly string[] {
  const all = testFiles().filter(({ file, runsOnBoth }) =>
    ENGINE === 'postgres' ? runsOnBoth || isOfPostgres(file) : !isOfPostgres(file),
  )
  return all.map(({ file }) => file).filter(long ? isLong : isShort)
}
