import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { listRows } from '../../db/ledger/read/read.ts'
import { cluster } from '../support/db/postgres/cluster.ts'
import { testGateway } from '../support/gateway.ts'
import { signedInBySecret } from '../support/oidc/jar.ts'
import { eventually } from '../support/settled.ts'

const server = await cluster()

/** Two gateways on one database, each with a data directory of its own. */
async function two(t: Parameters<typeof testGateway>[0]) {
  const settings = {
    MCP_PROXY_DATABASE_URL: await server.fresh(),
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
  }
  // At once: each finds an empty database.
  const options = { settings, ownCa: true }
  return Promise.all([testGateway(t, options), testGateway(t, options)])
}

const CHAT = { model: 'gpt-5-mini', messages: [] }

t.test('replicas that start at once have one CA', async (t) => {
  const [one, other] = await two(t)
  t.equal(one.ca, other.ca)
})

t.test(
  'who is enrolled at one replica is served by the other, and revoked there with its next call',
  async (t) => {
    const [one, other] = await two(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    t.equal((await other.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const patched = await one.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] })
    t.equal(patched.status, 200)
    const refused = await other.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.match(refused, { status: 403, json: { required_capability: 'llm.chat' } })
  },
)

t.test('50 changes of one set at once, at both, are 50 rows or 412, and the last one stands', async (t) => {
  const gateways = await two(t)
  const bot = await gateways[0].enroll('bot', [])
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, n) =>
      (gateways[n % 2] ?? gateways[0]).admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, {
        capabilities: [`tool.n${n}`],
      }),
    ),
  )
  t.same([...new Set(answers.map(({ status }) => status))], [200])
  const database = await openDatabase(gateways[0].settings.databaseUrl)
  t.teardown(() => database.close())
  const { rows } = await listRows(database.kysely, { action: 'agent.capabilities_patched', limit: 1000 })
  t.equal(rows.length, 50)
  const revisions = rows.map(({ detail }) => Number(detail.revision))
  t.equal(new Set(revisions).size, 50, 'each has a revision of its own')
  const last = rows.find(({ detail }) => Number(detail.revision) === Math.max(...revisions))
  const { json } = await gateways[1].admin('GET', `/v1/admin/agents/${bot.id}`)
  t.same(json.capabilities, last?.detail.capabilities)
})

t.test(
  'F-13 a gateway whose clock drifts off its database says so while it serves, and no more once it is set',
  async (t) => {
    let aheadMs = 0
    const settings = {
      MCP_PROXY_DATABASE_URL: await server.fresh(),
      MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
    }
    const gateway = await testGateway(t, { settings, clock: () => Date.now() + aheadMs })
    const said = () => gateway.log.filter(({ msg }) => /this machine's clock/.test(String(msg)))
    const ready = () => gateway.call(null, 'GET', '/ready')
    const page = async () => (await (await signedInBySecret(gateway)).ask('GET', '/proxy')).text
    for (const [ms, side] of [
      [40_000, 'ahead of'],
      [20_000, null],
      [-40_000, 'behind'],
      [0, null],
    ] as const) {
      const lines = said().length
      aheadMs = ms
      t.equal((await eventually(said, (all) => all.length > lines)).at(-1)?.level, side ? 40 : 30)
      const { status, json } = await ready()
      t.same([status, json.checks.clock], [200, side ? 'off' : undefined], 'calls are served')
      if (side)
        t.match(
          await page(),
          new RegExp(`The clock is wrong.*(?:39|40|41) seconds ${side} the database`, 's'),
        )
      else t.notMatch(await page(), 'The clock is wrong')
    }
  },
)

t.test(
  'F-08 while the database is away calls are 503 and none is dispatched, and then they are served again',
  async (t) => {
    const [one, other] = await two(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    const chat = (gateway: typeof one) => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal((await chat(other)).status, 200)
    await server.stop('immediate')
    const asked = other.upstream.seen.length
    for (const gateway of [one, other]) {
      const refused = await chat(gateway)
      t.match(refused, { status: 503, json: { error: { code: 'audit_unavailable' } } })
      t.ok(refused.headers['retry-after'])
      t.equal((await gateway.call(null, 'GET', '/ready')).status, 503)
    }
    t.equal(other.upstream.seen.length, asked)
    await server.start()
    for (const gateway of [one, other]) {
      let { status } = await chat(gateway)
      // Its writer may be on its way to the server still.
      for (let tries = 0; status === 503 && tries < 50; tries += 1) ({ status } = await chat(gateway))
      t.equal(status, 200)
    }
  },
)
