import { createPrivateKey } from 'node:crypto'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { getCACertificates, setDefaultCACertificates, TLSSocket } from 'node:tls'
import t, { type Test } from 'tap'
import { issueClientCertificate, issueServerCertificate } from '../../../../certs/authority/issue.ts'
import type { McpResource } from '../../../../db/mcp/resources.ts'
import { BOT, type Made, madeAuthority } from '../../../support/certs/made.ts'
import {
  legacy,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure } from '../../../support/mcp/upstream-calls.ts'

type Auth = Pick<McpResource, 'auth_type' | 'auth_secret_ref'>
const BEARER: Auth = { auth_type: 'bearer', auth_secret_ref: 'env:MCP_SECRET_TOKEN' }
const API_KEY: Auth = { auth_type: 'api_key', auth_secret_ref: 'file:/run/key' }
const MTLS: Auth = { auth_type: 'mtls', auth_secret_ref: 'file:/run/pem' }

const keyed = (url: string, auth: Auth, fields: Partial<McpResource> = {}) =>
  callOf(url, { resource: resourceAt(url, { ...auth, ...fields }) })

await t.test(
  '§2.4 the credentials of a resource go with every request to it, and with nothing else',
  async (t) => {
    const raw = await rawMcp(t, legacy())
    const upstream = upstreamFor(t)
    for (const era of ['legacy', 'modern'] as const) {
      await all(await upstream.call(keyed(raw.url, BEARER, { era, resource_id: 'a' })))
    }
    const bearer = raw.told.length
    for (const { headers } of raw.told) {
      t.equal(headers.authorization, 'Bearer secret-of-env:MCP_SECRET_TOKEN')
      t.notHas(headers, { 'x-api-key': '' })
    }
    await all(await upstream.call(keyed(raw.url, API_KEY, { resource_id: 'b' })))
    await all(await upstream.call(callOf(raw.url)))
    const [apiKey, none] = raw.told.slice(bearer)
    t.equal(apiKey?.headers['x-api-key'], 'secret-of-file:/run/key')
    t.notHas(apiKey?.headers, { authorization: '' })
    for (const name of ['authorization', 'x-api-key']) t.notHas(none?.headers, { [name]: '' })
  },
)

await t.test('a secret is read when it is needed, and believed for ten seconds', async (t) => {
  let at = 0
  const read: string[] = []
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const secret = async (reference: string) => {
    read.push(reference)
    return `version-${read.length}`
  }
  const upstream = upstreamFor(t, { clock: () => at, secret })
  t.same(read, [])
  for (const now of [1_000, 10_999, 11_000, 500]) {
    at = now
    await all(await upstream.call(keyed(raw.url, BEARER)))
  }
  t.same(
    raw.told.map(({ headers }) => headers.authorization),
    ['Bearer version-1', 'Bearer version-1', 'Bearer version-2', 'Bearer version-3'],
    'and not for longer because a clock was set back',
  )
})

await t.test('without a secret that can serve, nothing is sent', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  const secrets: [string, Auth][] = [
    ['', BEARER],
    ['two words', BEARER],
    ['line\r\nx-admin-secret: x', API_KEY],
    ['h\u00e9', API_KEY],
    ['no pem', MTLS],
    ['x', { auth_type: 'bearer', auth_secret_ref: null }],
  ]
  for (const [text, auth] of secrets) {
    const upstream = upstreamFor(t, { secret: async () => text })
    await t.rejects(upstream.call(keyed(raw.url, auth)), failure('failed'), JSON.stringify(text))
  }
  t.equal(raw.told.length, 0)
})

await t.test('a secret that cannot be read fails the call, and is asked for again', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, result(told)))
  let known = false
  const secret = async (): Promise<string> => {
    if (known) return 'known-now'
    throw new Error('env:MCP_SECRET_TOKEN names no secret')
  }
  const upstream = upstreamFor(t, { secret, clock: () => 0 })
  await t.rejects(upstream.call(keyed(raw.url, BEARER)), failure('failed'))
  known = true
  await all(await upstream.call(keyed(raw.url, BEARER)))
  t.equal(raw.told[0]?.headers.authorization, 'Bearer known-now')
})

await t.test('threat 30 no failure says the secret', async (t) => {
  const secret = 'hunter2-hunter2'
  const raw = await rawMcp(t)
  const upstream = upstreamFor(t, { secret: async () => secret })
  const bodies = [`{"jsonrpc":"2.0","id":1,"result":{"a":${secret}}}`, `Bearer ${secret}`, '{}']
  for (const [at, body] of bodies.entries()) {
    raw.act = (res) => sendJson(res, body, at === 1 ? 401 : 200)
    const whole = async () => all(await upstream.call(keyed(raw.url, BEARER)))
    const failed = await whole().catch((error: unknown) => error)
    t.match(failed, failure('failed'))
    t.notMatch(everythingOf(failed), secret)
  }
  t.equal(raw.told.length, 3)
})

/** An error with all that hangs on it, as a logger might write it. */
function everythingOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return `${error.stack} ${JSON.stringify(error)} ${error.cause ? everythingOf(error.cause) : ''}`
}

await t.test(
  '§2.4 with mtls the resource sees our certificate, and a new one once it is there',
  async (t) => {
    const made = await madeAuthority(Date.now())
    const { url, seen } = await tlsUpstream(t, made)
    const pems = await Promise.all(['first', 'second'].map((name) => clientPem(made, name)))
    let at = 0
    let pem = pems[0] ?? ''
    const upstream = upstreamFor(t, { secret: async () => pem, clock: () => at })
    await all(await upstream.call(keyed(url, MTLS)))
    await all(await upstream.call(keyed(url, MTLS)))
    pem = pems[1] ?? ''
    at = 10_000
    await all(await upstream.call(keyed(url, MTLS)))
    t.same(seen, ['first', 'first', 'second'])
  },
)

await t.test('TLS of an upstream is verified: one that nobody vouches for is unreachable', async (t) => {
  const made = await madeAuthority(Date.now())
  const { url, seen } = await tlsUpstream(t, made, false)
  const message = /certificate is of a CA that is not known here: name that CA in NODE_EXTRA_CA_CERTS \(/
  await t.rejects(upstreamFor(t).call(keyed(url, BEARER)), { kind: 'unreachable', message })
  const plain = url.replace('https:', 'http:')
  await t.rejects(upstreamFor(t).call(keyed(plain, BEARER)), {
    message: /speaks TLS there, write https:\/\/ /,
  })
  t.same(seen, [])
})

await t.test(
  'a client certificate that cannot be used is told by its cause, and nothing is sent',
  async (t) => {
    const made = await madeAuthority(Date.now())
    const { url, seen } = await tlsUpstream(t, made)
    const [own, other] = await Promise.all(['own', 'other'].map((name) => clientPem(made, name)))
    const parts = (pem = ''): readonly string[] =>
      pem.match(/-----BEGIN [\s\S]+?-----END [A-Z ]+-----/g) ?? []
    const [key = '', ...certificates] = parts(own)
    const [foreign = ''] = parts(other)
    const sealed = (options: object) =>
      String(createPrivateKey(key).export({ format: 'pem', ...options } as never))
    const passphrase = { cipher: 'aes-256-cbc', passphrase: 'word' }
    for (const [written, message] of [
      [sealed({ type: 'pkcs8', ...passphrase }), /key is sealed with a passphrase: write it without one/],
      [sealed({ type: 'sec1', ...passphrase }), /key is sealed with a passphrase: write it without one/],
      [foreign, /key is not the one of its certificate/],
      [key.replace(/\n[^-]{20}/, '\nAAAA'), /key cannot be read/],
    ] as const) {
      const upstream = upstreamFor(t, { secret: async () => [written, ...certificates].join('\n') })
      await t.rejects(upstream.call(keyed(url, MTLS)), { kind: 'failed', message })
    }
    t.same(seen, [])
  },
)

async function clientPem(made: Made, name: string): Promise<string> {
  const subject = { ...BOT, commonName: name }
  const { chainPem, privateKeyPem } = await issueClientCertificate(made.authority, subject, {
    at: Date.now(),
    days: 1,
  })
  // As operators have it: in any order, with words between.
  return `our key\n${privateKeyPem}\nour certificate\n${chainPem}`
}

/** A server that remembers the names of the certificates it was shown. */
async function tlsUpstream(t: Test, made: Made, trusted = true) {
  const term = { at: Date.now(), days: 1 }
  const { chainPem: cert, privateKeyPem: key } = await issueServerCertificate(
    made.authority,
    ['127.0.0.1'],
    term,
  )
  const seen: string[] = []
  const server = createServer({ cert, key, ca: made.rootPem, requestCert: true }, (req, res) => {
    const name = req.socket instanceof TLSSocket ? req.socket.getPeerX509Certificate()?.subject : undefined
    seen.push(/CN=(\S+)/.exec(name ?? '')?.[1] ?? 'nobody')
    let body = ''
    req.on('data', (piece: Buffer) => {
      body += piece.toString()
    })
    req.on('end', () => sendJson(res, { jsonrpc: '2.0', id: JSON.parse(body).id, result: {} }))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const before = getCACertificates('default')
  if (trusted) setDefaultCACertificates([...before, made.rootPem])
  t.teardown(() => setDefaultCACertificates(before))
  // A server that listens on TCP has an address and a port.
  const { port } = server.address() as AddressInfo
  return { url: `https://127.0.0.1:${port}/mcp`, seen }
}
