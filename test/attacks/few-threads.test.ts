import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { ANOTHER_USER, mayBeOthers } from '../support/another-user.ts'

const ROOT = join(import.meta.dirname, '../..')
/** A user of this run alone: threads are counted by user. */
const USER = ANOTHER_USER + 1 + (process.pid % 5_000)
/** The threads that a user may have: Node's own, and some for what is tried here. */
const MOST_THREADS = 24

/** Asks each kind of thread while the machine gives none, and again when it gives some. */
const PROGRAM = `
import { readFile } from 'node:fs/promises'
import { Worker } from 'node:worker_threads'
import { certificateThread } from '${ROOT}/proxy/admin/operation/certificate-thread.ts'
import { mcpThreadPool } from '${ROOT}/proxy/mcp/aside/aside.ts'
import { startEvaluator } from '${ROOT}/plugins/policy/policy.ts'

const said = { broken: [] }
process.on('uncaughtException', (error) => said.broken.push(String(error)))
process.on('unhandledRejection', (error) => said.broken.push(String(error)))
// Node starts the threads of its pool with the first task for one.
await readFile('package.json')
const threads = mcpThreadPool({ maxThreads: 2, lateMs: 5_000, waitMs: 2_000 })
const outcome = (work) => work.then(() => 'done', (error) => error.constructor.name + ': ' + error.message)
const enrolled = (at) => outcome(certificateThread.ask('readCaBundle', { caPem: 'none', at }))
const asked = () => outcome(threads.ask('judgeArguments', { digest: 'any', definition: '{"inputSchema":{"type":"object"}}', args: '{"a":1}' }, { key: 'x' }))

const fillers = []
for (;;) {
  try {
    const filler = new Worker('setInterval(() => {}, 1e6)', { eval: true })
    filler.on('error', () => {})
    fillers.push(filler)
  } catch (error) {
    said.code = error.code
    break
  }
}
said.certificates = [await enrolled(1), await enrolled(2)]
said.schemas = [await asked(), await asked()]
said.policy = await outcome(startEvaluator({ wasm: Buffer.alloc(8), data: null, entrypoint: 'a', initialPages: 1, maximumPages: 2 }, { startMs: 5_000, deadlineMs: 1_000 }))
await Promise.all(fillers.map((filler) => filler.terminate()))
// The system takes a moment to count a thread out that has ended.
const eventually = async (ask) => {
  for (let n = 0; n < 200; n += 1) {
    const answer = await ask()
    if (!/no thread|ERR_WORKER_INIT_FAILED|initialization/i.test(answer)) return answer
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}
said.afterwards = await eventually(() => enrolled(3))
said.schemasAfterwards = await eventually(asked)
process.stdout.write(JSON.stringify(said))
process.exit(0)
`

await t.test(
  'H16: while the machine gives no thread, what needs one is refused; nothing else ends, and no answer is another one’s',
  { skip: mayBeOthers ? false : 'only root can be another user, which must be able to read the checkout' },
  async (t) => {
    const directory = t.testdir({ 'program.mjs': PROGRAM })
    const limited = `ulimit -u ${MOST_THREADS}; exec "$0" "$1"`
    const child = spawn('bash', ['-c', limited, process.execPath, join(directory, 'program.mjs')], {
      cwd: ROOT,
      env: { PATH: process.env.PATH ?? '' },
      uid: USER,
      gid: USER,
    })
    const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)])
    t.not(out, '', err)
    const said = JSON.parse(out)
    t.same(said.broken, [])
    t.equal(said.code, 'ERR_WORKER_INIT_FAILED')
    for (const one of said.certificates)
      t.match(one, /^TaskIncompleteError: the check of certificates has no thread/)
    for (const one of said.schemas)
      t.match(one, /^TaskIncompleteError: the check of MCP messages has no thread/)
    t.match(said.policy, /^TaskIncompleteError: the policy has no thread/)
    t.match(said.afterwards, /^Refusal: /, 'the answer to this question, not to one of before')
    t.equal(said.schemasAfterwards, 'done')
  },
)
