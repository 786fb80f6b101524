import { Webhook } from 'standardwebhooks'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { notifyOptions } from '../../../proxy/notify/options.ts'
import { askedIn } from '../../support/approvals/stage.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { testGateway } from '../../support/gateway.ts'
import { hookReceiver } from '../../support/hooks.ts'
import { mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { operatorNamed } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'

const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
const EVENTS = ['approval.requested', 'approval.declined', 'tool_quarantined']

t.test('a target has an https URL, a name of its own, and a secret where it is signed', (t) => {
  const hook = { name: 'ops', url: 'https://hooks.test/x', format: 'slack', events: EVENTS }
  const isTaken = (...targets: readonly object[]) => notifyOptions.safeParse({ targets }).success
  t.ok(isTaken(hook))
  t.ok(isTaken({ ...hook, format: 'json', secret: `${SECRET}\n` }))
  t.notOk(isTaken(hook, hook), 'a name twice')
  t.notOk(isTaken({ ...hook, format: 'json' }), 'no secret')
  t.notOk(isTaken({ ...hook, format: 'json', secret: 'whsec_c2hvcnQ=' }), 'a short one')
  t.notOk(isTaken({ ...hook, secret: SECRET }), 'a secret that signs nothing')
  t.notOk(isTaken({ ...hook, events: ['egress_llm_chat'] }), 'calls are no events')
  for (const url of ['http://hooks.test', 'https://a:b@hooks.test', 'https://hooks.test/#x'])
    t.notOk(isTaken({ ...hook, url }), url)
  t.end()
})

const receiver = await hookReceiver(t)
const targets = [
  { name: 'ops', url: `${receiver.url}/slack`, format: 'slack', events: EVENTS },
  { name: 'pager', url: `${receiver.url}/json?key=1`, format: 'json', secret: SECRET, events: EVENTS },
]
let skewMs = 0
const files = { '75-notify.yaml': JSON.stringify({ plugin: 'notify', targets }) }
const stage = await mcpStage(t, { files, clock: () => Date.now() + skewMs })
const server = await toolServer(t, [tool('pay')])
const registered = await stage.register('files', server, { approval: 'operator' })
const bot = await stage.enroll('bot', ['files.use'])
await stage.bind(bot, registered)
const pay = (n: number) => stage.callTool(bot, 'files.pay', { n, iban: 'DE02 secret' })
const got = (path: string) => receiver.messages.filter((one) => one.path.startsWith(path))
const told = (path: string, count: number) =>
  eventually(
    () => got(path),
    (all) => all.length >= count,
    20_000,
  )
/** Both readers stand behind the rows of now: what comes next they tell. */
const begun = async () => {
  const db = await openDatabase(stage.settings.databaseUrl)
  await eventually(
    async () => (await db.kysely.selectFrom('export_cursors').select('sink').execute()).length,
    (many) => many >= 4,
    20_000,
  )
  await db.close()
}

await t.test('both forms say tool, principal and link, and carry no argument', async (t) => {
  await begun()
  const id = askedIn(await pay(1))
  const [signed] = await told('/json', 1)
  const [slack] = await told('/slack', 1)
  const link = new RegExp(`/proxy/approvals/${id}$`)
  const event = new Webhook(SECRET).verify(signed?.body ?? '', { ...signed?.headers })
  t.match(event, {
    type: 'approval.requested',
    data: { tool: 'files.pay', principal: 'acme::bot', link, text: /waits for an approval/ },
  })
  t.throws(() => new Webhook(SECRET).verify(`${signed?.body} `, { ...signed?.headers }))
  t.match(JSON.parse(slack?.body ?? ''), { text: /A call of files\.pay by acme::bot/, blocks: [{}, {}] })
  t.match(slack?.body, id)
  t.notMatch(JSON.stringify(receiver.messages), 'DE02')
})

await t.test('whoever takes nothing is told again under the same id, and Attention names them', async (t) => {
  receiver.answer(302)
  const before = got('/json').length
  const id = askedIn(await pay(2))
  const [first, again] = (await told('/json', before + 2)).slice(before)
  t.match(first?.body, id)
  t.equal(again?.headers['webhook-id'], first?.headers['webhook-id'])
  const jar = await signedInAs(stage, await operatorNamed(stage, 'eve', ['admin.read', 'admin.approve']))
  const page = await eventually(
    async () => (await jar.ask('GET', '/proxy')).text,
    (text) => text.includes('pager cannot be told') && text.includes('ops cannot be told'),
  )
  t.match(page, /127\.0\.0\.1:\d+ answered 302/)
  t.equal(receiver.messages.filter(({ path }) => path === '/').length, 0, 'no redirect is followed')
  receiver.answer(204)
  const taken = receiver.messages.length
  await eventually(
    () => receiver.messages.slice(taken).map(({ path }) => path.slice(0, 5)),
    (paths) => paths.includes('/json') && paths.includes('/slac'),
    20_000,
  )
  const quiet = await eventually(
    async () => (await jar.ask('GET', '/proxy')).text,
    (text) => !text.includes('cannot be told'),
  )
  t.notMatch(quiet, 'cannot be told')
})

await t.test('nobody is told of an approval whose time is over', async (t) => {
  receiver.answer(500)
  const before = receiver.messages.length
  const late = askedIn(await pay(3))
  await eventually(
    () => receiver.messages.length,
    (count) => count > before,
    20_000,
  )
  skewMs = 601_000
  receiver.answer(204)
  const next = askedIn(await pay(4))
  const all = await eventually(
    () => receiver.messages.slice(before),
    (messages) => messages.filter(({ body }) => body.includes(next)).length >= 2,
    70_000,
  )
  const first = all.findIndex(({ body }) => body.includes(next))
  t.ok(first > 0)
  t.notMatch(JSON.stringify(all.slice(first)), late)
})

await t.test('what nobody has taken before a restart is told after it', async (t) => {
  receiver.answer(503)
  const before = receiver.messages.length
  const id = askedIn(await pay(5))
  await eventually(
    () => receiver.messages.length,
    (count) => count > before,
    70_000,
  )
  await stage.close(0)
  receiver.answer(204)
  const stopped = receiver.messages.length
  const { dataDir, databaseUrl } = stage.settings
  await testGateway(t, {
    settings: { MCP_PROXY_DATA_DIR: dataDir, MCP_PROXY_DATABASE_URL: databaseUrl },
    ...{ files, clock: () => Date.now() + skewMs, verify: false },
  })
  const all = await eventually(
    () => receiver.messages.slice(stopped).filter(({ body }) => body.includes(id)),
    (messages) => messages.length >= 2,
    70_000,
  )
  t.equal(all.length, 2)
})
