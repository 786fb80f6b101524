import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'

const BUSY = `
  const kept = []
  for (let i = 0; i < 300_000; i += 1) kept.push({ i, list: [i] })
  const spaces = require('node:v8').getHeapSpaceStatistics()
  process.stdout.write(spaces.find(({ space_name: name }) => name === 'new_space').space_size / 1_048_576 + ' ')
`

// In a process of its own: the flags are a process's.
const MEASURE = `
  const { Worker } = require('node:worker_threads')
  void import(process.argv[1]).then(() => {
    new Worker(\`${BUSY}\`, { eval: true }).once('exit', () => {${BUSY}})
  })
`

await t.test('a busy thread keeps a small young generation, and the event loop its own', async (t) => {
  const flags = join(import.meta.dirname, '../../../proxy/boot/v8-flags.ts')
  const args = ['--max-semi-space-size=16', '--input-type=commonjs', '--eval', MEASURE, flags]
  const sizes = execFileSync(process.execPath, args, { encoding: 'utf8' }).trim().split(' ').map(Number)
  const [thread = 0, loop = 0] = sizes
  t.ok(thread > 0 && thread < loop / 2, `MiB: ${thread} of a thread, ${loop} of the loop`)
})
