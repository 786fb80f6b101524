import { execFile } from 'node:child_process'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Worker } from './support/in-turn/workers.ts'

const RUN = join(import.meta.dirname, 'run.ts')
const TAP = "import t from 'tap'\n"

/** Without what tells tap that somebody counts its results. */
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TAP')))

/** Runs tests as `make test` does. */
const run = (cwd: string, ...args: readonly string[]) =>
  new Promise<{ code: unknown; stdout: string; stderr: string }>((resolve) => {
    execFile(process.execPath, [RUN, ...args], { cwd, env }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : error.code, stdout, stderr }),
    )
  })

t.test('a run passes where each test of each file does, and says what did not', async (t) => {
  // Below this folder, where tap is found; no run takes hidden folders.
  const folder = t.testdir({
    'a.test.ts': `${TAP}t.pass('one'); t.equal(process.env.NODE_OPTIONS, undefined, 'as it is')`,
    b: { 'b.test.ts': `${TAP}t.pass('two')` },
    'helper.ts': 'throw new Error("it is no test")',
  })
  const passed = await run(folder, './b', 'a.test.ts', join(folder, 'a.test.ts'))
  t.equal(passed.code, 0, passed.stdout)
  t.match(passed.stdout, /# \{ total: 3, pass: 3 \}/)

  const failing = t.testdir({
    'a.test.ts': `${TAP}t.pass('one')`,
    'c.test.ts': `${TAP}t.equal(1, 2, 'three')`,
    'd.test.ts': 'process.exit(3)',
    'e.test.ts': "throw new Error('four')",
    'f.test.ts': `${TAP}t.test('five', async () => { await null; throw new Error('six') })`,
    'g.test.ts': `${TAP}t.pass('seven')`,
  })
  const failed = await run(failing, '.')
  t.equal(failed.code, 1)
  t.match(failed.stdout, /not ok 1 - three/)
  for (const passing of ['a', 'g'])
    t.match(failed.stdout, new RegExp(`^ok \\d - ${passing}\\.test\\.ts`, 'm'), passing)
  for (const not of ['c', 'd', 'e', 'f'])
    t.match(failed.stdout, new RegExp(`^not ok \\d - ${not}\\.test\\.ts`, 'm'), not)
  t.match(failed.stdout, /four/)
  t.match(failed.stdout, /six/, 'nor does what throws, or ends before it has said anything')
})

t.test('a path without a test is named, and nothing is run', async (t) => {
  const folder = t.testdir({ 'a.test.ts': `${TAP}t.pass('one')`, empty: { 'a.ts': '' } })
  const { code, stdout, stderr } = await run(folder, 'a.test.ts', 'empty', 'nowhere')
  t.equal(code, 1)
  t.equal(stdout, '')
  t.equal(stderr, 'there is no test in empty, nowhere\n')
})

/** A process ends within it, on a busy machine too. */
const PATIENCE_MS = 3_000

/** A worker that ends with the test, and a folder of files for it. */
function worker(t: Test, files: Record<string, string>): [worker: Worker, path: (name: string) => string] {
  const one = new Worker(env, PATIENCE_MS)
  t.teardown(() => one.child.kill('SIGKILL'))
  const folder = t.testdir(files)
  return [one, (name) => join(folder, name)]
}

t.test('files that run in turn in one process have each its own tests, teardown and result', async (t) => {
  const [one, path] = worker(t, {
    'a.test.ts': `${TAP}t.teardown(() => { globalThis.down = true }); t.test('not awaited', async (t) => t.pass('one'))`,
    'b.test.ts': `${TAP}t.ok(globalThis.down); t.equal(1, 2, 'two'); t.test('three', (t) => t.end())`,
    'c.test.ts': `${TAP}t.plan(1); setTimeout(() => t.pass('four'), 20); console.log('ok 9 - no result')`,
    'd.test.ts': `${TAP}t.plan(2); t.pass('five'); t.end()`,
  })
  const passed = await one.run(path('a.test.ts'), 30_000)
  t.match(passed, { ok: true, timedOut: false, tap: /^ {4}ok 1 - one$/m })
  t.match(await one.run(path('b.test.ts'), 30_000), {
    ok: false,
    tap: /^ok 1 [\s\S]*^not ok 2 - two[\s\S]*^ok 3 - three/m,
  })
  t.match(await one.run(path('c.test.ts'), 30_000), { ok: true, tap: /^1\.\.1$[\s\S]*^ok 1 - four$/m })
  t.match(await one.run(path('d.test.ts'), 30_000), { ok: false })
  t.equal(await one.end(), null)
})

t.test('a file that hangs has failed, and its process runs no other', async (t) => {
  t.jobs = 3
  for (const [hangs, seen] of [
    ['await new Promise(() => setInterval(() => {}, 9))', { ok: false, timedOut: true, tap: /timeout!/ }],
    [
      "await t.test('two', () => new Promise(() => setInterval(() => {}, 9))); await t.test('three', async () => {})",
      { ok: false, timedOut: true, tap: /timeout!/ },
    ],
    ['while (true);', { reason: 'said nothing for 6 s' }],
  ] as const)
    void t.test(hangs, { buffered: true }, async (t) => {
      const [one, path] = worker(t, { 'a.test.ts': `${TAP}t.pass('one'); ${hangs}`, 'b.test.ts': TAP })
      // The time counts from when it is told, and it has to start first.
      await one.run(path('b.test.ts'), 60_000)
      t.match(await one.run(path('a.test.ts'), PATIENCE_MS), seen)
      t.match(await one.end(), { reason: 'ended with SIGKILL' })
    })
})

t.test('what a file leaves behind is seen: an error, an exit code, a connection', async (t) => {
  for (const [left, reason] of [
    ["setTimeout(() => { throw new Error('late') }, 100)", /code 1$/],
    ["setTimeout(() => Promise.reject(new Error('late')), 100)", /code 1$/],
    ['process.exitCode = 4', /code 4$/],
    ['setInterval(() => {}, 9)', /SIGKILL$/],
  ] as const) {
    const [one, path] = worker(t, { 'a.test.ts': `${TAP}t.pass('one'); ${left}` })
    t.match(await one.run(path('a.test.ts'), 30_000), { ok: true })
    t.match(await one.end(), { files: [path('a.test.ts')], reason }, left)
  }
  const [one, path] = worker(t, {
    'a.test.ts': `${TAP}t.pass('one'); setTimeout(() => { throw new Error('late') }, 100)`,
    'b.test.ts': `${TAP}await new Promise((resolve) => setTimeout(resolve, 2_000))`,
  })
  await one.run(path('a.test.ts'), 30_000)
  const broken = await one.run(path('b.test.ts'), 30_000)
  t.match(
    broken,
    { files: [path('a.test.ts'), path('b.test.ts')] },
    'of the files of that process one has failed',
  )
})
