import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { Agent } from 'node:https'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import { overSocket } from '../support/control.ts'
import { ADMIN_SECRET, agentOf, ask, CHAT, type Json } from '../support/gateway.ts'
import { environment } from '../support/process.ts'
import { eventually } from '../support/settled.ts'
import { smallDisk, withoutTmpfs } from '../support/small-disk.ts'
import { testUpstream } from '../support/upstream.ts'

const MAIN = join(import.meta.dirname, '../../proxy/main.ts')
const CHAT_PATH = '/v1/chat/completions'
/** The time that an orderly end may take on a busy machine, in addition to the calls under way. ms. */
const END_MS = 20_000

interface Started {
  readonly child: ChildProcess
  readonly control: ReturnType<typeof overSocket>
}

/** Starts a gateway whose standard output is `stdout`. It is killed with the test. */
async function started(t: Test, stdout: number | 'pipe'): Promise<Started> {
  const upstream = await testUpstream(t)
  // A socket's path has 108 bytes at most.
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-log-'))
  t.teardown(() => rmSync(directory, { recursive: true, force: true }))
  const env = await environment(directory, upstream.url)
  const child = spawn(process.execPath, [MAIN], { env, stdio: ['ignore', stdout, 'pipe'] })
  const ended = once(child, 'exit')
  t.teardown(async () => {
    child.kill('SIGKILL')
    await ended
  })
  // The last thing that it says to a person, whatever its log.
  if (!child.stderr) throw new Error('it has no standard error')
  for await (const line of createInterface({ input: child.stderr }))
    if (line.includes('data directory:')) break
  const control = overSocket(join(directory, 'data/control.sock'))
  return { child, control }
}

const checksOf = async ({ control }: Started): Promise<Json> => (await control('GET', '/ready')).json.checks

/** Ends a gateway in order. Returns its exit code; null where it did not end. */
async function endOf({ child }: Started): Promise<number | null> {
  const ended = once(child, 'exit')
  const late = setTimeout(() => child.kill('SIGKILL'), END_MS)
  child.kill('SIGTERM')
  const [code] = await ended
  clearTimeout(late)
  return code
}

await t.test(
  'H16: a log that can never be written stops nobody, and its end is an orderly one',
  async (t) => {
    const full = openSync('/dev/full', 'w')
    t.teardown(() => closeSync(full))
    const gateway = await started(t, full)
    await gateway.control('GET', '/nothing')
    const checks = await eventually(
      () => checksOf(gateway),
      ({ log }) => log === 'losing',
    )
    t.same(checks, { database: 'ok', audit: 'ok', ca: 'ok', plugins: 'ok', providers: 'ok', log: 'losing' })
    t.equal((await gateway.control('GET', '/ready')).status, 200, 'it serves')
    t.equal(await endOf(gateway), 0)
  },
)

await t.test(
  'H16: while the disk of the log is full calls are served; with room again it goes on, and nothing is torn',
  { skip: withoutTmpfs() },
  async (t) => {
    const mount = smallDisk(t, '1m')
    const [log, ballast] = [join(mount, 'log'), join(mount, 'ballast')]
    const fd = openSync(log, 'a')
    t.teardown(() => closeSync(fd))
    const gateway = await started(t, fd)
    const lines = (): readonly Json[] =>
      readFileSync(log, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => JSON.parse(line))
    const [{ url }] = await eventually(
      async () => lines().filter(({ msg }) => msg === 'ready'),
      (found) => found.length > 0,
    )
    const agent = new Agent({ rejectUnauthorized: false })
    const { text: ca } = await ask(`${url}/pki/ca.crt`, 'GET', { agent })
    const { json } = await ask(`${url}/v1/admin/agents`, 'POST', {
      agent,
      headers: { 'x-admin-secret': ADMIN_SECRET },
      body: { agent_name: 'bot', capabilities: ['llm.chat'] },
    })
    const bot = agentOf(ca, { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }, true)
    t.teardown(() => bot.destroy())
    const call = () => ask(`${url}${CHAT_PATH}`, 'POST', { agent: bot, body: CHAT })
    const filling = openSync(ballast, 'w')
    t.throws(
      () => {
        for (;;) writeFileSync(filling, Buffer.alloc(4096))
      },
      { code: 'ENOSPC' },
    )
    closeSync(filling)
    const statuses = new Set<number>()
    for (let n = 0; n < 30; n += 1) statuses.add((await call()).status)
    await eventually(
      () => checksOf(gateway),
      ({ log: said }) => said === 'losing',
    )
    statuses.add((await call()).status)
    t.same([...statuses], [200])
    rmSync(ballast)
    const checks = await eventually(
      () => checksOf(gateway),
      ({ log: said }) => said === undefined,
    )
    t.notOk('log' in checks)
    t.equal(await endOf(gateway), 0)
    const calls = lines().filter(({ path }) => path === CHAT_PATH)
    t.equal(calls.length, 31, 'what fits waited for the room')
  },
)

await t.test('H16: SIGTERM ends a gateway whose log nobody reads', async (t) => {
  const gateway = await started(t, 'pipe')
  // More lines than the pipe has room for.
  for (let round = 0; round < 20; round += 1)
    await Promise.all(Array.from({ length: 100 }, () => gateway.control('GET', '/nothing')))
  t.equal((await gateway.control('GET', '/ready')).status, 200)
  t.equal(await endOf(gateway), 0)
})
