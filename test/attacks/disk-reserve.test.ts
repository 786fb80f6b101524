import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { flood } from '../support/flood.ts'
import { CHAT, type Identity, type Json, type TestGateway, testGateway } from '../support/gateway.ts'
import { eventually } from '../support/settled.ts'
import { smallDisk, withoutTmpfs } from '../support/small-disk.ts'

const CHAT_PATH = '/v1/chat/completions'

const deniedRows = (gateway: TestGateway, who: Identity) =>
  gateway.rows({ principal: who.id, status: 'denied' })

await t.test('D3: while the disk is low, what is allowed has its rows and nothing else', async (t) => {
  // More than any disk has.
  const gateway = await testGateway(t, { settings: { MCP_PROXY_DISK_RESERVE_MIB: '999999999' } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const nobody = await gateway.enroll('nobody', [])
  const checks = { database: 'ok', audit: 'ok', ca: 'ok', plugins: 'ok', providers: 'ok', disk: 'low' }
  const { status, json } = await gateway.call(null, 'GET', '/ready')
  t.strictSame([status, json], [200, { status: 'ready', checks }])
  const refused = await flood(gateway, nobody, 20)
  t.strictSame([...new Set(refused.map(({ status: answered }) => answered))], [403])
  t.same(await deniedRows(gateway, nobody), [])
  const chat = await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })
  t.strictSame([chat.status, typeof chat.headers['audit-receipt']], [200, 'string'])
  const { text } = await gateway.admin('GET', '/metrics')
  t.match(text, /^sallyport_disk_free_bytes [1-9]\d*$/m)
  t.match(text, `\nsallyport_disk_reserve_bytes ${999_999_999 * 1_048_576}\n`)
  t.ok(gateway.log.some(({ level, reserve_bytes }) => level === 40 && reserve_bytes > 0))
  await gateway.close(0)
  t.strictSame(
    (await deniedRows(gateway, nobody)).map(({ detail }: Json) => detail.summarised.count),
    [20],
    'none is lost from the count',
  )
})

await t.test(
  'D3: a small disk that fills is low before it is full, and serves what is allowed; then it has room again',
  { skip: withoutTmpfs() },
  async (t) => {
    const mount = smallDisk(t, '40m')
    const settings = { MCP_PROXY_DATA_DIR: join(mount, 'data'), MCP_PROXY_DISK_RESERVE_MIB: '20' }
    const gateway = await testGateway(t, { settings })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const nobody = await gateway.enroll('nobody', [])
    const ready = () => gateway.call(null, 'GET', '/ready')
    t.notOk('disk' in (await ready()).json.checks)
    const ballast = join(mount, 'ballast')
    writeFileSync(ballast, Buffer.alloc(20 << 20))
    const low = await eventually(ready, ({ json }) => json.checks.disk === 'low')
    t.match(low, { status: 200, json: { status: 'ready', checks: { disk: 'low' } } })
    await flood(gateway, nobody, 200)
    t.same(await deniedRows(gateway, nobody), [])
    t.equal((await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })).status, 200)
    rmSync(ballast)
    await eventually(ready, ({ json }) => !('disk' in json.checks))
    const { headers } = await gateway.call(nobody, 'POST', CHAT_PATH, { body: CHAT })
    t.ok(headers['audit-receipt'], 'refusals have their rows again')
    await gateway.close(0)
  },
)
