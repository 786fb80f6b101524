import { Agent } from 'node:https'
import t from 'tap'
import { memoryLimits } from '../../proxy/wiring/services.ts'
import { ADMIN_SECRET, ask, CHAT } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'
import { completion, testUpstream } from '../support/upstream.ts'

const MIB = 1024 * 1024
const BODIES = 16
/** Two bytes a character in V8's heap, for one in the body. */
const LONG = `${'x'.repeat(8 * MIB)}Ж`

await t.test('H17: no budget is more than a quarter of V8’s heap, and none more than it was', (t) => {
  const by = (heldMib: number | null, heapMib: number) =>
    memoryLimits({ heldMib, heldPerPrincipalMib: null }, heapMib * MIB)
  t.same(by(null, 128), { process: 32 * MIB, perPrincipal: 16 * MIB, perAnonymous: 8 * MIB })
  t.equal(by(1024, 1024).process, 256 * MIB, 'also where somebody has set more')
  t.equal(by(1024, 8192).process, 1024 * MIB)
  const { process, perPrincipal } = memoryLimits({ heldMib: 64, heldPerPrincipalMib: 256 }, 128 * MIB)
  t.ok(perPrincipal <= process)
  t.end()
})

await t.test(
  'H17: bodies of one principal that fill V8’s heap are refused, and the gateway serves on',
  async (t) => {
    const upstream = await testUpstream(t)
    const answering = Promise.withResolvers<void>()
    upstream.answer = async (res, seen) => {
      await answering.promise
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
    // Refused: it is told 503, or, while it still sends more than is read of a refused body, hung up on.
    let refused = 0
    const served = (ending: PromiseSettledResult<{ status: number }>): boolean =>
      ending.status === 'fulfilled' && ending.value.status === 200
    const endings = await Promise.all(
      calling.map(async (one) => {
        const [ending] = await Promise.allSettled([one])
        if (!served(ending)) refused += 1
        // What fits waits for its answer, and holds its bytes meanwhile.
        if (refused === BODIES / 2) answering.resolve()
        return ending
      }),
    )
    for (const ending of endings)
      if (ending.status === 'fulfilled')
        t.ok([200, 503].includes(ending.value.status), 'served, or told to wait')
    t.ok(endings.some(served), 'what fits is served')
    t.equal((await call('hi')).status, 200, 'an honest call is served afterwards')
    t.equal(child.exitCode, null)
    child.kill('SIGTERM')
    t.match(await ended, { code: 0 })
    admin.destroy()
    bot.destroy()
  },
)
