import { execFile } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'

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
  const passed = await run(folder, 'b', 'a.test.ts')
  t.equal(passed.code, 0, passed.stdout)
  t.match(passed.stdout, /# \{ total: 3, pass: 3 \}/)

  const failing = t.testdir({
    'a.test.ts': `${TAP}t.pass('one')`,
    'c.test.ts': `${TAP}t.equal(1, 2, 'three')`,
    'd.test.ts': 'process.exit(3)',
  })
  const failed = await run(failing, '.')
  t.equal(failed.code, 1)
  t.match(failed.stdout, /not ok 1 - three/)
  t.match(failed.stdout, /not ok \d - d\.test\.ts/, 'nor does a file that ends before it has said anything')
})

t.test('a path without a test is named, and nothing is run', async (t) => {
  const folder = t.testdir({ 'a.test.ts': `${TAP}t.pass('one')`, empty: { 'a.ts': '' } })
  const { code, stdout, stderr } = await run(folder, 'a.test.ts', 'empty', 'nowhere')
  t.equal(code, 1)
  t.equal(stdout, '')
  t.equal(stderr, 'there is no test in empty, nowhere\n')
})
