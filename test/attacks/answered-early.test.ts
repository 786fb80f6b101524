import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { Client } from 'undici'
import { readIdentity } from '../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../scripts/client/sidecar.ts'
import { clientSession } from '../../scripts/client/signing/session.ts'
import { run } from '../support/clients/files.ts'
import { identityDirectory } from '../support/clients/identity.ts'
import { ADMIN_SECRET, type Identity, scratch, sharedGateway, testGateway } from '../support/gateway.ts'
import { lockDatabase } from '../support/locker.ts'
import { rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually } from '../support/settled.ts'
import { header2 } from '../support/tls/proxy-header.ts'
import { BALANCER, relay } from '../support/tls/relay.ts'

/**
 * Writes each request whole before it reads a byte, as `requests` and httpx do. A write that fails, or a connection
 * that is reset before the answer was read, is an error.
 */
const WRITES_FIRST = `
import json, socket, ssl, sys, time
for case in json.load(open(sys.argv[1])):
    connection = socket.create_connection(('127.0.0.1', case['port']), timeout=20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        if 'ca' in case:
            context = ssl.create_default_context(cafile=case['ca'])
            if case.get('cert'):
                context.load_cert_chain(case['cert'], case['key'])
            connection = context.wrap_socket(connection, server_hostname='localhost')
        connection.sendall(case['head'].encode('latin1'))
        size, chunked = case['size'], case['chunked']
        filler = b'x' * 65536
        for at in range(0, size, len(filler)):
            piece = filler[:size - at]
            connection.sendall(b'%x\\r\\n%b\\r\\n' % (len(piece), piece) if chunked else piece)
        if chunked:
            connection.sendall(b'0\\r\\n\\r\\n')
        written = time.monotonic()
        answer, length = b'', None
        while length is None or len(answer) < length:
            piece = connection.recv(65536)
            if piece == b'':
                break
            answer = (answer + piece).removeprefix(b'HTTP/1.1 100 Continue\\r\\n\\r\\n')
            head = answer.find(b'\\r\\n\\r\\n')
            for line in answer[:head].lower().split(b'\\r\\n') if length is None and head >= 0 else []:
                if line.startswith(b'content-length:'):
                    length = head + 4 + int(line[15:])
        print(json.dumps({'text': answer.decode('latin1'), 'waited': time.monotonic() - written}))
    except Exception as error:
        print(json.dumps({'text': repr(error), 'waited': 99}))
    connection.close()
`

const { code } = await run('python3', ['--version']).catch(() => ({ code: null }))
const skip = code === 0 ? false : 'python3 is not installed here'

const MB = 1_000_000
const CHAT_PATH = '/v1/chat/completions'
const JSON_TYPE = 'content-type: application/json'

interface WrittenFirst {
  readonly name: string
  readonly line: string
  readonly headers?: readonly string[]
  /** The bytes of the body. Default: 8 MB. */
  readonly size?: number
  readonly chunked?: boolean
  readonly as?: Identity
  readonly expected: number
}

interface Reached {
  readonly url: string
  /** The root of the server's certificate. PEM. Absent: without TLS. */
  readonly ca?: string
}

/** Sends each request, all of it written before anything is read, and looks at what is read then. */
async function answersTo(t: Test, { url, ca }: Reached, cases: readonly WrittenFirst[]): Promise<void> {
  const directory = await scratch(t)
  const file = (name: string, text: string): string => {
    const path = join(directory, name)
    writeFileSync(path, text)
    return path
  }
  const port = Number(new URL(url).port)
  const asked = cases.map(({ line, headers = [], size = 8 * MB, chunked = false, as }, at) => {
    const framing = chunked ? 'transfer-encoding: chunked' : `content-length: ${size}`
    const lines = [`${line} HTTP/1.1`, `host: localhost:${port}`, ...headers, framing]
    const tls = ca !== undefined && { ca: file('ca.pem', ca) }
    const identity = as && { cert: file(`${at}.crt`, as.cert), key: file(`${at}.key`, as.key) }
    return { port, ...tls, ...identity, size, chunked, head: `${lines.join('\r\n')}\r\n\r\n` }
  })
  const args = [file('writes-first.py', WRITES_FIRST), file('cases.json', JSON.stringify(asked))]
  const { out, err } = await run('python3', args)
  const answers = out.split('\n').filter((line) => line !== '')
  t.equal(answers.length, cases.length, `all were sent: ${err}`)
  for (const [at, { name, expected }] of cases.entries()) {
    const { text, waited } = JSON.parse(answers[at] ?? '{"text": ""}')
    const [head = '', body = ''] = text.split('\r\n\r\n')
    t.same(statuses(head), [expected], `${name}: ${text.slice(0, 50)}`)
    t.equal(body.length, Number(/content-length: (\d+)/i.exec(head)?.[1]), `${name}: the body is whole`)
    t.ok(waited < 1, `${name}: ${waited} s after its last byte`)
  }
}

/** How a client that reads while it writes sends a request. */
type Sender = (to: Reached, asked: SentRequest) => Promise<{ readonly status: number; readonly text: string }>

interface SentRequest {
  readonly path: string
  readonly headers: Record<string, string>
  readonly body: Buffer | Readable
  readonly identity: { readonly cert?: string; readonly key?: string }
  /** Ends the request of a client that waits in vain. */
  readonly signal: AbortSignal
}

const SENDERS: Readonly<Record<string, Sender>> = {
  undici: async ({ url, ca }, { path, headers, body, identity, signal }) => {
    const client = new Client(url, ca === undefined ? {} : { connect: { ca, ...identity } })
    const answer = await client.request({ method: 'POST', path, headers, body, signal })
    const text = await answer.body.text()
    await client.destroy()
    return { status: answer.statusCode, text }
  },
  'node:https': async ({ url, ca }, { path, headers, body, identity, signal }) => {
    const request = ca === undefined ? httpRequest : httpsRequest
    const req = request(`${url}${path}`, { method: 'POST', headers, agent: false, signal, ca, ...identity })
    const answered = once(req, 'response')
    if (Buffer.isBuffer(body)) req.end(body)
    else body.pipe(req)
    const [res] = (await answered) as [IncomingMessage]
    return { status: res.statusCode ?? 0, text: await text(res) }
  },
}

/** Sends each request by clients that read meanwhile: each gets the status, and the whole body, within seconds. */
async function answersMeanwhile(t: Test, to: Reached, cases: readonly WrittenFirst[]): Promise<void> {
  for (const [client, send] of Object.entries(SENDERS)) {
    for (const { name, line, headers = [], size = 8 * MB, chunked = false, as, expected } of cases) {
      const path = line.split(' ')[1] ?? ''
      const pieces = Array.from({ length: Math.ceil(size / 65_536) }, () => Buffer.alloc(65_536, 'x'))
      const body = chunked ? Readable.from(pieces) : Buffer.alloc(size, 'x')
      const identity = as ? { cert: as.cert, key: as.key } : {}
      const given = Object.fromEntries(headers.map((one) => one.split(/: (.*)/, 2)))
      const answer = await send(to, {
        path,
        headers: given,
        body,
        identity,
        signal: AbortSignal.timeout(5_000),
      })
      t.equal(answer.status, expected, `${client}, ${name}`)
      t.match(JSON.parse(answer.text), { reason: /./ }, `${client}, ${name}: the body is whole`)
    }
  }
}

/** By whoever reads when. */
async function answersAll(t: Test, to: Reached, cases: readonly WrittenFirst[]): Promise<void> {
  if (!skip) await answersTo(t, to, cases)
  await answersMeanwhile(t, to, cases)
}

const chat = { line: `POST ${CHAT_PATH}` }
const LONG_HEADER = `x-a: ${'a'.repeat(60_000)}`

await t.test('a refusal of a long request is read by who writes all of it first', { skip }, async (t) => {
  const gateway = await sharedGateway(t)
  const [as, nobody] = [await gateway.enroll('bot', ['llm.chat']), await gateway.enroll('nobody', [])]
  const admin = [`x-admin-secret: ${ADMIN_SECRET}`, JSON_TYPE]
  await answersTo(t, gateway, [
    { name: 'no capability', ...chat, as: nobody, expected: 403 },
    { name: 'no capability, 31 MB', ...chat, as: nobody, size: 31 * MB, expected: 403 },
    { name: 'no capability, 300 kB', ...chat, as: nobody, size: 300_000, expected: 403 },
    { name: 'no capability, in chunks', ...chat, as: nobody, chunked: true, expected: 403 },
    { name: 'no capability, close', ...chat, as: nobody, headers: ['connection: close'], expected: 403 },
    {
      name: '300 kB, close',
      ...chat,
      as: nobody,
      size: 300_000,
      headers: ['connection: close'],
      expected: 403,
    },
    { name: 'no capability, Expect', ...chat, as: nobody, headers: ['expect: 100-continue'], expected: 403 },
    { name: 'another expectation', ...chat, as: nobody, headers: ['expect: 200-ok'], expected: 417 },
    { name: 'no certificate', ...chat, expected: 401 },
    { name: 'no certificate, 300 kB', ...chat, size: 300_000, expected: 401 },
    { name: 'no certificate, in chunks', ...chat, chunked: true, expected: 401 },
    { name: 'messages', line: 'POST /v1/messages', as: nobody, expected: 403 },
    { name: 'longer than a call may be', ...chat, as, size: 40 * MB, expected: 413 },
    { name: 'longer, in chunks', ...chat, as, size: 40 * MB, chunked: true, expected: 413 },
    { name: 'a tool, without a certificate', line: 'POST /v1/mcp', expected: 401 },
    { name: 'a tool', line: 'POST /v1/mcp', as, headers: [JSON_TYPE], size: 31 * MB, expected: 413 },
    { name: 'administration without its secret', line: 'POST /v1/admin/agents', expected: 403 },
    { name: 'administration', line: 'POST /v1/admin/agents', headers: admin, expected: 413 },
    { name: 'a token', line: 'POST /v1/auth/token', as, expected: 413 },
    { name: 'setup', line: 'POST /v1/admin/setup', headers: [JSON_TYPE], expected: 413 },
    { name: 'a form', line: 'POST /proxy/sign-out', expected: 413 },
    { name: 'health', line: 'POST /health', expected: 405 },
    { name: 'a path that is not there', line: 'POST /nowhere', expected: 404 },
    { name: 'two content types', ...chat, headers: [JSON_TYPE, JSON_TYPE], expected: 400 },
    { name: 'a coding', ...chat, headers: ['transfer-encoding: gzip'], chunked: true, expected: 400 },
    { name: 'a header without a name', ...chat, headers: [': a'], expected: 400 },
    { name: 'headers of 60 KB', ...chat, headers: [LONG_HEADER], size: 0, expected: 431 },
    { name: 'headers of 60 KB and a body', ...chat, headers: [LONG_HEADER], expected: 431 },
    { name: 'headers of 1 MB', ...chat, headers: [`x-a: ${'a'.repeat(MB)}`], expected: 431 },
  ])
  const plain = { name: 'plain HTTP at the port of TLS', ...chat, expected: 400 }
  await answersTo(t, { url: gateway.url }, [plain])
  t.equal(gateway.upstream.seen.length, 0)
})

await t.test('who reads while it writes gets the same refusals', async (t) => {
  const gateway = await sharedGateway(t)
  const [as, nobody] = [await gateway.enroll('bot-2', ['llm.chat']), await gateway.enroll('nobody-2', [])]
  const admin = [`x-admin-secret: ${ADMIN_SECRET}`, JSON_TYPE]
  await answersMeanwhile(t, gateway, [
    { name: 'no capability', ...chat, as: nobody, expected: 403 },
    { name: 'no certificate, in chunks', ...chat, chunked: true, expected: 401 },
    { name: 'longer than a call may be', ...chat, as, size: 40 * MB, expected: 413 },
    { name: 'a tool, without a certificate', line: 'POST /v1/mcp', expected: 401 },
    { name: 'administration', line: 'POST /v1/admin/agents', headers: admin, expected: 413 },
    { name: 'headers of 60 KB', ...chat, headers: [LONG_HEADER], expected: 431 },
  ])
})

await t.test('a door that is shut for a while says so to who writes first, and to who reads', async (t) => {
  const gateway = await testGateway(t, {
    settings: { MCP_PROXY_HELD_MIB: '64' },
    timers: { roomMs: 200 },
  })
  const as = await gateway.enroll('bot', ['llm.chat'])
  // What it holds already leaves it no room for more.
  const { send, socket } = await rawConnect(t, gateway, as)
  send(requestBytes('POST', CHAT_PATH, [JSON_TYPE, `content-length: ${30 * MB}`]))
  send('x'.repeat(29 * MB))
  await eventually(
    async () =>
      Number(/^sallyport_held_bytes (\S+)/m.exec((await gateway.admin('GET', '/metrics')).text)?.[1]),
    (held) => held > 28 * MB,
  )
  await answersAll(t, gateway, [
    { name: 'overloaded, in chunks', ...chat, as, size: 20 * MB, chunked: true, expected: 503 },
  ])
  socket.destroy()

  const guess = { line: 'POST /v1/admin/agents', headers: ['x-admin-secret: a guess', JSON_TYPE] }
  for (let tries = 0; tries < 11; tries += 1)
    await gateway.call(null, 'POST', '/v1/admin/agents', {
      headers: { 'x-admin-secret': 'a guess' },
      body: {},
    })
  await answersAll(t, gateway, [
    { name: 'throttled', ...guess, expected: 429 },
    { name: 'throttled, 300 kB', ...guess, size: 300_000, expected: 429 },
    { name: 'throttled, in chunks', ...guess, chunked: true, expected: 429 },
  ])
})

await t.test('and so while no decision can be recorded', async (t) => {
  const gateway = await testGateway(t)
  const nobody = await gateway.enroll('nobody', [])
  const release = await lockDatabase(t, gateway.settings.databaseUrl.slice('sqlite:'.length))
  await answersAll(t, gateway, [{ name: 'no record', ...chat, as: nobody, expected: 503 }])
  await release()
})

await t.test('and so behind a balancer that says who calls', { skip }, async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_PROXY_PROTOCOL: BALANCER } })
  const as = await gateway.enroll('nobody', [])
  const { ca } = gateway
  const url = await relay(t, gateway.url, { header: header2() })
  await answersTo(t, { url, ca }, [
    { name: 'no capability', ...chat, as, expected: 403 },
    { name: 'headers of 60 KB', ...chat, as, headers: [LONG_HEADER], expected: 431 },
  ])
})

await t.test('and so through the sidecar, its own refusals and those of the gateway', { skip }, async (t) => {
  const gateway = await testGateway(t)
  const session = clientSession(readIdentity(await identityDirectory(t, gateway)))
  const sidecar = await startSidecar(session, '127.0.0.1', 0)
  t.teardown(async () => {
    await sidecar.close(0)
    await session.close()
  })
  await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
  await answersMeanwhile(t, sidecar, [
    { name: 'no capability', ...chat, expected: 403 },
    { name: 'no capability, in chunks', ...chat, chunked: true, expected: 403 },
    { name: 'a page of another site', ...chat, headers: ['origin: https://a.example'], expected: 403 },
    { name: 'headers of 60 KB', ...chat, headers: [LONG_HEADER], expected: 431 },
  ])
  await answersTo(t, sidecar, [
    { name: 'no capability', ...chat, expected: 403 },
    { name: 'no capability, 31 MB', ...chat, size: 31 * MB, expected: 403 },
    { name: 'no capability, in chunks', ...chat, chunked: true, expected: 403 },
    { name: 'no capability, close', ...chat, headers: ['connection: close'], expected: 403 },
    { name: 'no capability, Expect', ...chat, headers: ['expect: 100-continue'], expected: 403 },
    { name: 'a path that is not there', line: 'POST /nowhere', expected: 404 },
    { name: 'a page of another site', ...chat, headers: ['origin: https://a.example'], expected: 403 },
    { name: 'two hosts', ...chat, headers: ['host: evil.example'], expected: 400 },
    { name: 'headers of 60 KB', ...chat, headers: [LONG_HEADER], size: 0, expected: 431 },
    { name: 'headers of 60 KB and a body', ...chat, headers: [LONG_HEADER], expected: 431 },
    { name: 'a header without a name', ...chat, headers: [': a'], expected: 400 },
  ])
  await session.close()
  await gateway.close(0)
  await answersTo(t, sidecar, [{ name: 'a gateway that is away', ...chat, size: 300_000, expected: 502 }])
})

await t.test('a short body that was refused leaves its connection to the next request', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', [])
  const { send, until } = await rawConnect(t, gateway, bot)
  send(requestBytes('POST', CHAT_PATH, [JSON_TYPE, 'content-length: 100000']))
  t.match(await until('"request_id"'), /^HTTP\/1\.1 403 .*connection: keep-alive/is)
  send('x'.repeat(100_000) + requestBytes('GET', '/health'))
  t.same(statuses(await until('{"status":"ok"}')), [403, 200])
})

await t.test('a body that cannot be read is told so while it is read', async (t) => {
  const timers = { headersMs: 300, requestMs: 300, checkMs: 50 }
  const gateway = await testGateway(t, { timers })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const cases: readonly (readonly [string, string, number, string])[] = [
    [
      'a size that is no number',
      requestBytes('POST', CHAT_PATH, ['transfer-encoding: chunked']),
      400,
      'bad_request',
    ],
    ['half of a body', requestBytes('POST', CHAT_PATH, ['content-length: 1000']), 408, 'body_timeout'],
  ]
  for (const [name, head, status, reason] of cases) {
    const { send, closed } = await rawConnect(t, gateway, bot)
    send(`${head}zz\r\n`)
    const text = await closed
    t.same(statuses(text), [status], name)
    t.match(text, `"reason":"${reason}"`, name)
    t.match(text, /connection: close/i, name)
  }
  t.equal(gateway.upstream.seen.length, 0)
})

await t.test('who goes on sending for ever, or says nothing, is hung up on', async (t) => {
  const gateway = await testGateway(t, { timers: { lingerMs: 600 } })
  for (const endless of [true, false]) {
    const { socket, send, closed, until } = await rawConnect(t, gateway, null)
    send(requestBytes('POST', CHAT_PATH, ['content-length: 10000000000']))
    t.same(statuses(await until('"request_id"')), [401])
    const piece = Buffer.alloc(16_384)
    const drip = endless ? setInterval(() => socket.write(piece), 10) : undefined
    t.same(statuses(await closed), [401], 'with nothing more')
    clearInterval(drip)
  }
})

await t.test('a stop does not wait for who has been answered and sends on', async (t) => {
  const gateway = await testGateway(t)
  const { send, until, closed } = await rawConnect(t, gateway, null)
  send(requestBytes('POST', CHAT_PATH, ['content-length: 10000000000']))
  await until('"request_id"')
  await Promise.all([gateway.close(0), closed])
  t.pass('it ended')
})
