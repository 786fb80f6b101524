import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { testGateway } from '../support/gateway.ts'
import { chatBytes, rawConnect } from '../support/raw.ts'

await t.test(
  'F-30 a call whose head ends while the service stops leaves no row behind service.stopped',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const bytes = chatBytes('gpt-test')
    const late = await Promise.all(Array.from({ length: 40 }, () => rawConnect(t, gateway, bot)))
    for (const { send } of late) send(bytes.slice(0, 60))
    // Answered behind them: their heads have begun.
    for (let n = 0; n < 3; n += 1) await gateway.call(bot, 'GET', '/health')
    const stopped = gateway.close()
    for (const { send } of late) {
      send(bytes.slice(60))
      await nextTurn()
    }
    await stopped
    const rows = await gateway.rows()
    t.match(rows.at(-1), { action: 'service.stopped' })
    const calls = rows.filter(({ action }) => action === 'egress_llm_chat')
    const allowed = calls.filter(({ status }) => status === 'allowed')
    t.equal(calls.length, 2 * allowed.length, 'and each decision has its outcome')
  },
)
