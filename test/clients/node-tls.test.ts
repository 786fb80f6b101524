import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { Agent } from 'node:https'
import { connect, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { run, without } from '../support/certs/openssl.ts'
import { byCorporateCa } from '../support/foreign.ts'
import { CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'

/** The first certificate of a chain. */
const leafOf = (chain: string): string =>
  `${chain.split('-----END CERTIFICATE-----')[0]}-----END CERTIFICATE-----\n`

/** A TLS connection after its handshake. */
async function handshake(
  t: Test,
  { url, ca }: TestGateway,
  { cert, key }: Identity,
  more: { maxVersion?: 'TLSv1.2'; session?: Buffer } = {},
): Promise<TLSSocket> {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port), servername: hostname, ca, cert, key, ...more })
  t.teardown(() => socket.destroy())
  await once(socket, 'secureConnect')
  return socket
}

await t.test(
  '§5.2 a client that sends its leaf alone is known as well as one that sends the chain',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const leaf = leafOf(bot.cert)
    t.equal(bot.cert.match(/BEGIN CERTIFICATE/g)?.length, 2, 'an agent is given leaf and intermediate')
    t.equal(new X509Certificate(leaf).subject.split('\n').at(-1), 'CN=acme::bot')
    for (const cert of [leaf, bot.cert]) {
      const { status } = await gateway.call({ ...bot, cert }, 'POST', '/v1/chat/completions', { body: CHAT })
      t.equal(status, 200)
    }
    const { status, json } = await gateway.call(null, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal(status, 401, 'and without a certificate the answer is HTTP, which says why')
    t.match(json, { reason: 'certificate_required' })
  },
)

await t.test('the gateway shows its whole chain: the root is all that a client must have', async (t) => {
  const gateway = await testGateway(t)
  const socket = await handshake(t, gateway, await gateway.enroll('bot', []))
  t.ok(socket.authorized)
  t.equal(socket.getProtocol(), 'TLSv1.3')
  t.equal(new X509Certificate(gateway.ca).ca, true)
})

await t.test('a client that does not know the root refuses the gateway', async (t) => {
  const gateway = await testGateway(t)
  const stranger = new Agent({ ca: [] })
  await t.rejects(gateway.call(null, 'GET', '/health', { agent: stranger }), {
    code: /UNABLE_TO|SELF_SIGNED/,
  })
  stranger.destroy()
})

await t.test('TLS 1.2 is refused, and spoken where the operator says so', async (t) => {
  const strict = await testGateway(t)
  const bot = await strict.enroll('bot', [])
  await t.rejects(handshake(t, strict, bot, { maxVersion: 'TLSv1.2' }), {
    code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION',
  })
})

await t.test(
  'TLS 1.2 is spoken where the operator says so, and a client certificate counts there too',
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_TLS_MIN_VERSION: '1.2' } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await handshake(t, gateway, bot, { maxVersion: 'TLSv1.2' })).getProtocol(), 'TLSv1.2')
    const agent = new Agent({ ca: gateway.ca, cert: leafOf(bot.cert), key: bot.key, maxVersion: 'TLSv1.2' })
    const { status } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT, agent })
    t.equal(status, 200)
    agent.destroy()
  },
)

await t.test(
  'docs/protocol.md#listeners a certificate is asked for and no CA is named, whichever are attached',
  { skip: without('openssl') },
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_TLS_MIN_VERSION: '1.2' } })
    const { caPem } = await byCorporateCa('bot')
    const attached = await gateway.admin('POST', '/v1/admin/ca/attach', {
      ca_pem: caPem,
      kind: 'organisation',
    })
    t.equal(attached.status, 201)
    for (const version of ['-tls1_3', '-tls1_2']) {
      const { host } = new URL(gateway.url)
      const { text } = await run('openssl', '/', ['s_client', '-connect', host, version])
      t.match(text, /^Requested Signature Algorithms: /m, `${version}: it asks`)
      t.match(text, /^No client certificate CA names sent$/m, `${version}: and names none`)
    }
  },
)

await t.test('T5 no session is resumed: each connection shows its certificate again', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', [])
  const first = await handshake(t, gateway, bot)
  const offered = once(first, 'session')
  first.write('GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n')
  await once(first, 'data')
  // OpenSSL hands out TLS 1.3 tickets all the same; what they name was never kept, so they are worth nothing.
  const [session] = await offered
  const second = await handshake(t, gateway, bot, { session })
  t.equal(second.isSessionReused(), false)
  t.ok(second.authorized)
})
