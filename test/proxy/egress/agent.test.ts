import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net'
import { getCACertificates, setDefaultCACertificates, type TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { issueClientCertificate, issueServerCertificate } from '../../../certs/authority/issue.ts'
import {
  type EgressOptions,
  EgressRefused,
  egressAgent,
  type ResolveHost,
} from '../../../proxy/egress/agent.ts'
import { BOT, madeAuthority } from '../../support/certs/made.ts'

const PATIENCE = { connectMs: 10_000, answerMs: 10_000 }

const answering = (...addresses: readonly string[]): ResolveHost => {
  const all = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }) as const)
  return () => Promise.resolve(all)
}

async function listening(t: Test, server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => server.close())
  // Proven: it listens on a port.
  return (server.address() as AddressInfo).port
}

function agentOf(t: Test, options: Partial<EgressOptions>) {
  const agent = egressAgent({ ...PATIENCE, allowPrivate: true, ...options })
  t.teardown(() => agent.destroy())
  return async (origin: string, headers: Record<string, string> = {}) => {
    const { body, statusCode } = await agent.request({ origin, path: '/', method: 'GET', headers })
    return `${statusCode} ${await body.text()}`
  }
}

await t.test(
  'T16: a name is connected to where private addresses are allowed, an address as well',
  async (t) => {
    const port = await listening(
      t,
      createServer((req, res) => void res.end(req.headers.host)),
    )
    const get = agentOf(t, { resolve: answering('127.0.0.1') })
    t.equal(await get(`http://upstream.example:${port}`), `200 upstream.example:${port}`)
    t.equal(await get(`http://127.0.0.1:${port}`), `200 127.0.0.1:${port}`)
  },
)

await t.test('T16: the default resolver finds localhost', async (t) => {
  const port = await listening(
    t,
    createServer((_req, res) => void res.end('here')),
  )
  t.equal(await agentOf(t, {})(`http://localhost:${port}`), '200 here')
})

await t.test(
  'T16: where they are not, neither the name nor the address is, and nothing is sent',
  async (t) => {
    let connections = 0
    const port = await listening(
      t,
      createServer().on('connection', () => (connections += 1)),
    )
    const get = agentOf(t, { allowPrivate: false, resolve: answering('127.0.0.1') })
    await t.rejects(get(`http://upstream.example:${port}`), EgressRefused)
    await t.rejects(get(`http://127.0.0.1:${port}`), EgressRefused)
    await t.rejects(get(`https://upstream.example:${port}`), { name: 'EgressRefused', reason: 'loopback' })
    await t.rejects(get(`http://[::1]:${port}`), EgressRefused)
    t.equal(connections, 0)
  },
)

await t.test('T16: one forbidden address among several refuses the name', async (t) => {
  let connections = 0
  const port = await listening(
    t,
    createServer().on('connection', () => (connections += 1)),
  )
  const get = agentOf(t, { resolve: answering('127.0.0.1', '169.254.169.254') })
  await t.rejects(get(`http://upstream.example:${port}`), { name: 'EgressRefused', reason: 'metadata' })
  t.equal(connections, 0)
})

await t.test('T16: what a resolver says in another spelling is refused, and so is no answer', async (t) => {
  for (const answer of [['0177.0.0.1'], ['localhost'], ['::ffff:127.0.0.1'], []]) {
    await t.rejects(agentOf(t, { resolve: answering(...answer) })('http://upstream.example:9'), answer.join())
  }
})

await t.test('T16: a name is asked once for each connection, and not again for a pooled one', async (t) => {
  let asked = 0
  let connections = 0
  const server = createServer((_req, res) => void res.end('alive')).on('connection', () => (connections += 1))
  const port = await listening(t, server)
  // The first address is dead: the next one is tried.
  const addresses = answering('127.0.0.2', '127.0.0.1')
  const resolve: ResolveHost = (...given) => {
    asked += 1
    return addresses(...given)
  }
  const get = agentOf(t, { resolve })
  for (let request = 0; request < 4; request += 1) {
    t.equal(await get(`http://upstream.example:${port}`), '200 alive')
  }
  t.equal(asked, connections)
  t.ok(connections < 4, `${connections} connections for 4 requests`)
})

await t.test('T16: keepAlive false makes a connection for each request', async (t) => {
  let connections = 0
  const server = createServer((_req, res) => void res.end('x')).on('connection', () => (connections += 1))
  const port = await listening(t, server)
  const get = agentOf(t, { keepAlive: false })
  await get(`http://127.0.0.1:${port}`)
  await get(`http://127.0.0.1:${port}`)
  t.equal(connections, 2)
})

await t.test(
  'threat 19: a connection that does not come to stand ends in time: DNS, TCP and TLS under one clock',
  async (t) => {
    const silent = await listening(t, createTcpServer())
    const code = { code: 'UND_ERR_CONNECT_TIMEOUT' }
    await t.rejects(agentOf(t, { connectMs: 50 })(`https://127.0.0.1:${silent}`), code)
    const resolve: ResolveHost = () => new Promise(() => undefined)
    await t.rejects(agentOf(t, { connectMs: 50, resolve })('http://upstream.example:9'), code)
  },
)

await t.test('T16: a proxy of the environment is not used', async (t) => {
  let proxied = 0
  const proxy = await listening(
    t,
    createServer().on('connection', () => (proxied += 1)),
  )
  const port = await listening(
    t,
    createServer((_req, res) => void res.end('direct')),
  )
  const names = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'ALL_PROXY']
  for (const name of names) process.env[name] = `http://127.0.0.1:${proxy}`
  process.env.NODE_USE_ENV_PROXY = '1'
  t.teardown(() => {
    for (const name of [...names, 'NODE_USE_ENV_PROXY']) delete process.env[name]
  })
  t.equal(await agentOf(t, {})(`http://127.0.0.1:${port}`), '200 direct')
  t.equal(proxied, 0)
})

await t.test('T16: TLS is verified by the name in the URL', async (t) => {
  const at = Date.now()
  const made = await madeAuthority(at)
  const { chainPem: cert, privateKeyPem: key } = await issueServerCertificate(
    made.authority,
    ['upstream.example', '127.0.0.1'],
    { at, days: 1 },
  )
  const seen: string[] = []
  const server = createTlsServer({
    cert,
    key,
    ca: made.rootPem,
    requestCert: true,
    rejectUnauthorized: false,
  })
  server.on('request', (req: IncomingMessage, res) => {
    // Proven: an https server's connections are TLS.
    const socket = req.socket as TLSSocket & { servername?: string | false }
    const name = socket.getPeerX509Certificate()?.subject.includes('bot') ? 'bot' : 'nobody'
    seen.push(`${socket.servername} ${socket.alpnProtocol} ${name} ${req.headers.host}`)
    res.end('secure')
  })
  const port = await listening(t, server)
  const resolve = answering('127.0.0.1')

  await t.rejects(agentOf(t, { resolve })(`https://upstream.example:${port}`), /certificate/, 'an unknown CA')
  const before = getCACertificates('default')
  setDefaultCACertificates([...before, made.rootPem])
  t.teardown(() => setDefaultCACertificates(before))

  const get = agentOf(t, { resolve, keepAlive: false })
  t.equal(await get(`https://upstream.example:${port}`), '200 secure')
  t.equal(await get(`https://upstream.example:${port}`, { host: 'other.example' }), '200 secure')
  t.equal(await get(`https://127.0.0.1:${port}`), '200 secure', 'an address that the certificate names')
  const mismatch = { code: 'ERR_TLS_CERT_ALTNAME_INVALID' }
  await t.rejects(get(`https://other.example:${port}`), mismatch)
  await t.rejects(
    get(`https://other.example:${port}`, { host: 'upstream.example' }),
    mismatch,
    'a host header',
  )
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0'
  t.teardown(() => delete process.env.NODE_TLS_REJECT_UNAUTHORIZED)
  await t.rejects(agentOf(t, { resolve })(`https://other.example:${port}`), mismatch, 'the environment')

  const bot = await issueClientCertificate(made.authority, BOT, { at, days: 1 })
  const tls = { cert: bot.chainPem, key: bot.privateKeyPem }
  t.equal(await agentOf(t, { resolve, tls })(`https://upstream.example:${port}`), '200 secure')
  t.same(seen, [
    `upstream.example http/1.1 nobody upstream.example:${port}`,
    'upstream.example http/1.1 nobody other.example',
    `false http/1.1 nobody 127.0.0.1:${port}`,
    `upstream.example http/1.1 bot upstream.example:${port}`,
  ])
})
