import { Agent } from 'node:https'
import t from 'tap'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { ask, CHAT, type Identity, type TestGateway, testGateway } from '../../support/gateway.ts'
import { haproxy, skipWithoutHaproxy } from '../../support/haproxy.ts'
import { BALANCER } from '../../support/tls/relay.ts'

/** Two gateways on one database. The tests' own calls come from 127.0.0.1, and are the balancer's business nowhere. */
async function two(t: Parameters<typeof testGateway>[0]) {
  const settings = {
    MCP_PROXY_DATABASE_URL: await (await cluster()).migrated(),
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
    MCP_PROXY_PROXY_PROTOCOL: BALANCER,
  }
  const gateways = await Promise.all([0, 1].map(() => testGateway(t, { settings, ownCa: true })))
  const [one] = gateways
  if (!one) throw new Error('no gateway')
  return { gateways, one, servers: gateways.map(({ url }) => `127.0.0.1:${new URL(url).port}`) }
}

/** One chat call through a balancer from an address of this machine, on a connection of its own. */
async function chat({ ca }: TestGateway, { cert, key }: Identity, port: number, localAddress: string) {
  const agent = new Agent({ ca, cert, key, localAddress })
  const { status } = await ask(`https://127.0.0.1:${port}/v1/chat/completions`, 'POST', { agent, body: CHAT })
  agent.destroy()
  return status
}

const callersOf = (gateways: readonly TestGateway[]) =>
  gateways.map(({ log }) =>
    log.filter(({ path }) => path === '/v1/chat/completions').map((line) => String(line.remote_address)),
  )

const WAYS = {
  'version 2': { proxyProtocol: true },
  'version 2 with a checksum and an id': {
    proxyProtocol: true,
    words: 'proxy-v2-options crc32c,unique-id,authority,ssl,cert-cn',
  },
  'version 1': { words: 'send-proxy' },
} as const

t.test(
  'calls through HAProxy are mutual TLS from end to end, and say whose they are',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const { gateways, one, servers } = await two(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    for (const [name, way] of Object.entries(WAYS)) {
      const words = `source ${BALANCER} ${'words' in way ? way.words : ''}`
      const balancer = await haproxy(t, servers, { ...way, words, check: 'ready' })
      for (const address of ['127.0.0.8', '127.0.0.9']) {
        for (const _ of servers) t.equal(await chat(one, bot, balancer.port, address), 200, name)
      }
      const stranger = await ask(`https://127.0.0.1:${balancer.port}/v1/models`, 'GET', {
        agent: new Agent({ ca: one.ca }),
      })
      t.equal(stranger.status, 401, 'without a certificate')
    }
    const both = Object.keys(WAYS).flatMap(() => ['127.0.0.8', '127.0.0.9'])
    t.same(
      callersOf(gateways).map((callers) => callers.toSorted()),
      [both.toSorted(), both.toSorted()],
    )
  },
)

t.test(
  'a gateway that is gone is passed over, and seen to be gone',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const { gateways, one, servers } = await two(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    const words = `source ${BALANCER}`
    const balancer = await haproxy(t, servers, { proxyProtocol: true, words, check: 'ready' })
    await gateways[1]?.close(0)
    for (let n = 0; n < 6; n += 1) t.equal(await chat(one, bot, balancer.port, '127.0.0.8'), 200)
    await balancer.until((states) => states.map(({ up }) => up).join() === 'true,false')
    t.equal(callersOf(gateways)[0]?.length, 6)
  },
)

t.test(
  'a balancer that is not listed, or does not say who calls, takes its gateways for gone',
  { skip: skipWithoutHaproxy },
  async (t) => {
    const { servers } = await two(t)
    for (const options of [{ proxyProtocol: true }, { words: `source ${BALANCER}` }]) {
      const balancer = await haproxy(t, servers, { ...options, check: 'ready', wait: false })
      await balancer.until((states) => states.every(({ up }) => !up))
      t.pass(JSON.stringify(options))
    }
  },
)
