import { Agent } from 'node:https'
import t from 'tap'
import { memoryLimits } from '../../proxy/wiring/services.ts'
import { ADMIN_SECRET, ask, CHAT } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'
import { eventually } from '../support/settled.ts'
import { completion, testUpstream } from '../support/upstream.ts'

const MIB = 1024 * 1024
const BODIES = 8
/** Two bytes a character in V8's heap, for one in the body. */
const LONG = `${'x'.repeat(8 * MIB)}Ж`

await t.test('H17: no budget is more than a quarter of V8’s heap, and none more than it was', (t) => {
  const by = (heldMib: number | null, heapMib: number) =>
    memoryLimits({ heldMib, heldPerPrincipalMib: null }, heapMib * MIB)
  t.same(by(null, 128), { process: 32 * MIB, perPrincipal: 8 * MIB, perAnonymous: 8 * MIB })
  t.equal(by(1024, 1024).process, 256 * MIB, 'also where somebody has set more')
  t.equal(by(1024, 8192).process, 1024 * MIB)
  const { process, perPrincipal } = memoryLimits({ heldMib: 64, heldPerPrincipalMib: 256 }, 128 * MIB)
  t.ok(perPrincipal <= process)
  t.end()
})

await t.test('H17: bodies of one principal that would fill V8’s heap wait, and all are served', async (t) => {
  const upstream = await testUpstream(t)
  const answering = Promise.withResolvers<void>()
  upstream.answer = async (res, seen) => {
    if (seen.body.length > MIB) await answering.promise
    await completion(res, seen)
  }
  const env = await environment(t.testdir({}), upstream.url)
  const { child, ready, ended } = startProcess(t, { ...env, MCP_PROXY_LOG_LEVEL: 'warn' }, [
    '--max-old-space-size=160',
    '--max-semi-space-size=16',
  ])
  const url = await ready
  const admin = new Agent({ rejectUnauthorized: false })
  const { json } = await ask(`${url}/v1/admin/agents`, 'POST', {
    agent: admin,
    headers: { 'x-admin-secret': ADMIN_SECRET },
    body: { agent_name: 'bot', capabilities: ['llm.chat'] },
  })
  const bot = new Agent({ rejectUnauthorized: false, cert: json.cert_chain_pem, key: json.private_key_pem })
  const call = (content: string) => {
    const body = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] })
    return ask(`${url}/v1/chat/completions`, 'POST', { agent: bot, body })
  }
  const calling = Array.from({ length: BODIES }, () => call(LONG))
  // What fits waits for its answer, and holds its bytes meanwhile.
  await eventually(
    () => upstream.seen.length,
    (count) => count > 0,
  )
  t.equal((await call('hi')).status, 200, 'a short call is served beside them')
  answering.resolve()
  const statuses = (await Promise.all(calling)).map(({ status }) => status)
  t.strictSame(statuses, Array(BODIES).fill(200))
  t.equal((await call('hi')).status, 200, 'an honest call is served afterwards')
  t.equal(child.exitCode, null)
  child.kill('SIGTERM')
  t.match(await ended, { code: 0 })
  admin.destroy()
  bot.destroy()
})
