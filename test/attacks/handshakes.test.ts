import { spawn } from 'node:child_process'
import { generateKeyPairSync } from 'node:crypto'
import { once } from 'node:events'
import { connect as connectTcp, createServer } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'
import { type RawOptions, rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually } from '../support/settled.ts'
import { chainOf, costlyChain, costlyKey } from '../support/tls/costly-chain.ts'
import { oneByOne } from '../support/tls/relay.ts'

interface Attack {
  readonly addresses?: readonly string[]
  readonly connections?: number
  readonly tries?: number
  /** True: for honest clients, which ask something, and whose process exits with how many had no answer. */
  readonly asks?: boolean
  readonly options: RawOptions
}

/** Starts a client that shakes hands again and again, as a process: its work is not ours. */
function shake(t: Test, { url }: TestGateway, attack: Attack) {
  const { addresses = ['127.0.0.2'], connections = 2, tries = Number.POSITIVE_INFINITY, options } = attack
  const counts = [String(connections), String(tries), ...(attack.asks ? ['ask'] : [])]
  const args = [new URL(url).port, addresses.join(','), ...counts]
  const child = spawn(process.execPath, [join(import.meta.dirname, '../support/tls/shake.ts'), ...args], {
    env: { PATH: process.env.PATH ?? '', OPTIONS: JSON.stringify(options) },
    stdio: 'inherit',
  })
  t.teardown(() => child.kill('SIGKILL'))
  return child
}

/** The handshakes that were ended for this reason. */
async function faults(gateway: TestGateway, reason: string): Promise<number> {
  const { text } = await gateway.admin('GET', '/metrics')
  return Number(new RegExp(`handshake_faults_total{reason="${reason}"} (\\d+)`).exec(text)?.[1] ?? 0)
}

const call = (gateway: TestGateway, who: Identity) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })

const dear = costlyKey()
const plain = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey
const explicit = generateKeyPairSync('ec', { namedCurve: 'P-256', paramEncoding: 'explicit' }).privateKey
const CHAINS = {
  'of 61 certificates': { ...costlyChain(61), fault: 'flight_too_long' },
  'of as many as are read': { ...costlyChain(8), fault: 'costly_certificate' },
  'whose leaf is the costly one': { ...chainOf(dear, [dear]), fault: 'costly_certificate' },
  'whose root is the costly one': { ...chainOf(plain, [plain, plain, dear]), fault: 'costly_certificate' },
  'whose curve is spelled out': { ...chainOf(plain, [plain, explicit]), fault: 'costly_certificate' },
  'of 30 short ones': {
    ...chainOf(
      plain,
      Array.from({ length: 30 }, () => plain),
    ),
    fault: 'too_many_certificates',
  },
}

const TRIES = 6
/** Of the main thread for each try. OpenSSL takes 8 ms for each signature of such a key. ms. */
const CHEAP = 20

for (const version of ['TLSv1.3', 'TLSv1.2'] as const) {
  await t.test(`A1: ${version}, a stranger's costly chain ends the handshake unread`, async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_TLS_MIN_VERSION: version.slice(4) } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await call(gateway, bot)).status, 200)
    for (const [name, { fault, cert, key }] of Object.entries(CHAINS)) {
      const earlier = await faults(gateway, fault)
      const before = process.threadCpuUsage()
      const options = { cert, key, maxVersion: version }
      const child = shake(t, gateway, { tries: TRIES, options })
      const [code] = await once(child, 'exit')
      const { user, system } = process.threadCpuUsage(before)
      const ms = (user + system) / 1000 / TRIES
      t.equal(code, 0)
      t.equal((await faults(gateway, fault)) - earlier, TRIES, `${name}: ${fault}`)
      t.ok(ms < CHEAP, `${name}: ${ms} ms`)
    }
    t.equal((await call(gateway, bot)).status, 200)
  })
}

await t.test('A1: groups that cost the server much are not agreed on', async (t) => {
  const gateway = await testGateway(t)
  for (const ecdhCurve of ['ffdhe2048', 'ffdhe8192', 'P-521', 'X448']) {
    await t.rejects(rawConnect(t, gateway, null, { ecdhCurve }), ecdhCurve)
  }
  for (const ecdhCurve of ['X25519', 'P-256', 'P-384', 'X25519MLKEM768']) {
    await t.resolves(rawConnect(t, gateway, null, { ecdhCurve }), ecdhCurve)
  }
})

await t.test('A1: every honest handshake comes to its end', async (t) => {
  const rsa = generateKeyPairSync('rsa', { modulusLength: 4096 }).privateKey
  const chains = {
    'no certificate': {},
    'one of RSA-4096': chainOf(rsa, [rsa]),
    'ten of P-256': chainOf(
      plain,
      Array.from({ length: 10 }, () => plain),
    ),
    'a leaf of P-256 and four of RSA-4096': chainOf(plain, [plain, rsa, rsa, rsa, rsa]),
  }
  const gateway = await testGateway(t, { settings: { MCP_PROXY_TLS_MIN_VERSION: '1.2' } })
  const SUITES = ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256']
  const manners: RawOptions[] = [{ maxVersion: 'TLSv1.2' }, ...SUITES.map((ciphers) => ({ ciphers }))]
  for (const [name, chain] of Object.entries(chains)) {
    for (const manner of manners) {
      const connection = await rawConnect(t, gateway, null, { ...chain, ...manner })
      connection.send(requestBytes('GET', '/health', ['connection: close']))
      t.same(statuses(await connection.closed), [200], `${name}, ${manner.ciphers ?? manner.maxVersion}`)
    }
  }
})

await t.test('A1: a handshake that comes one byte at a time comes to its end', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const slow = createServer({ noDelay: true }, (client) => {
    const socket = connectTcp({ host: '127.0.0.1', port: Number(new URL(gateway.url).port), noDelay: true })
    socket.pipe(client).on('error', () => {})
    client.on('close', () => socket.destroy())
    client.on('data', (bytes: Buffer) => {
      client.pause()
      void oneByOne(bytes, socket).then(() => client.resume())
    })
  }).listen(0, '127.0.0.1')
  t.teardown(() => slow.close())
  await once(slow, 'listening')
  const address = slow.address()
  const url = `https://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
  const { send, closed } = await rawConnect(t, { ...gateway, url }, bot)
  send(requestBytes('GET', '/health', ['connection: close']))
  t.same(statuses(await closed), [200])
})

await t.test('A1: callers are served beside 40 strangers on 40 addresses', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const addresses = Array.from({ length: 40 }, (_, i) => `127.0.3.${i + 1}`)
  const { cert, key } = CHAINS['of as many as are read']
  shake(t, gateway, { addresses, connections: 1, options: { cert, key } })
  const ended = () => faults(gateway, 'costly_certificate')
  t.ok((await eventually(ended, (count) => count > 40)) > 40, 'the attack is under way')
  const answers = await Promise.all(Array.from({ length: 50 }, () => call(gateway, bot)))
  t.same(new Set(answers.map(({ status }) => status)), new Set([200]), 'each on a connection of its own')
})

await t.test(
  'A1: a herd comes in whole beside costly chains, however long it waits; the silent end',
  async (t) => {
    const timers = { handshakeMs: 1_500 }
    const gateway = await testGateway(t, { timers })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await call(gateway, bot)).status, 200)
    // The machine has other things to do for twice as long as a client may be silent.
    const busy = setInterval(() => {
      for (const until = performance.now() + 80; performance.now() < until; );
    }, 100)
    setTimeout(() => clearInterval(busy), 2 * timers.handshakeMs)
    const strangers = Array.from({ length: 40 }, (_, i) => `127.0.3.${i + 1}`)
    const { cert, key } = CHAINS['of as many as are read']
    shake(t, gateway, { addresses: strangers, connections: 1, options: { cert, key } })
    const silent = connectTcp({
      port: Number(new URL(gateway.url).port),
      host: '127.0.0.1',
      localAddress: '127.0.0.9',
    })
    silent.on('error', () => {}).resume()
    const silentEnded = once(silent, 'close')
    await eventually(
      () => faults(gateway, 'costly_certificate'),
      (count) => count > 5,
    )
    const herd = { asks: true, tries: 150, options: { cert: bot.cert, key: bot.key } }
    const many = Array.from({ length: 150 }, (_, i) => `127.0.4.${i + 1}`)
    const herds = [
      shake(t, gateway, { ...herd, connections: 150 }),
      shake(t, gateway, { ...herd, addresses: many, connections: 1 }),
    ]
    const unanswered = Promise.all(herds.map((child) => once(child, 'exit')))
    t.equal((await call(gateway, bot)).status, 200, 'who is connected is served meanwhile')
    t.same((await unanswered).flat(), [0, null, 0, null], 'none of one address, and none of many')
    await silentEnded
    t.ok((await faults(gateway, 'handshake_timeout')) >= 1)
    t.equal(await faults(gateway, 'too_many_handshakes'), 0)
  },
)

await t.test('A1: those that shake hands when the gateway stops do not keep it', async (t) => {
  const gateway = await testGateway(t)
  const { hostname, port } = new URL(gateway.url)
  const socket = connectTcp(Number(port), hostname)
  socket.on('error', () => {}).resume()
  await once(socket, 'connect')
  const closed = once(socket, 'close')
  await gateway.close(0)
  await closed
  t.pass()
})
