import { renameSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CHAT, testGateway } from '../support/gateway.ts'
import { sallyport } from '../support/run.ts'

await t.test(
  'H16: a gateway whose control socket somebody has removed serves, says so, and nobody takes its place',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const chat = async () => (await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status
    const env = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
    t.equal((await sallyport(['health'], env)).code, 0)
    const socket = join(gateway.settings.dataDir, 'control.sock')
    renameSync(socket, `${socket}.away`)
    t.match(await sallyport(['health'], env), { code: 1, err: /^sallyport: no gateway answers on / })
    const second = await sallyport(['certs'], env)
    t.equal(second.code, 1, 'a second one that would write the same ledger does not start')
    t.match(second.err, /^sallyport: .+\n$/, 'one sentence')
    t.equal(await chat(), 200, 'the first one goes on')
    await gateway.close(0)
  },
)
