import { once } from 'node:events'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { Agent } from 'undici'
import { readIdentity } from '../../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../../scripts/client/sidecar.ts'
import { type ClientSession, clientSession } from '../../../scripts/client/signing/session.ts'
import { type Ran, run } from '../../support/clients/files.ts'
import { arrivals, identityDirectory } from '../../support/clients/identity.ts'
import { CHAT, sharedGateway, type TestGateway, testGateway } from '../../support/gateway.ts'
import { completion, testUpstream } from '../../support/upstream.ts'

const JSON_BODY = ['-H', 'content-type: application/json']

/** A sidecar for a new agent, and curl as a client that knows nothing of certificates. */
async function sidecarOf(t: Test, gateway: TestGateway) {
  const session = clientSession(readIdentity(await identityDirectory(t, gateway)))
  const sidecar = await startSidecar(session, '127.0.0.1', 0)
  t.teardown(async () => {
    await sidecar.close(0)
    await session.close()
  })
  const curl = (path: string, args: readonly string[], onOutput?: (text: string) => void): Promise<Ran> =>
    run('curl', ['-sS', '--noproxy', '*', ...args, sidecar.url + path], onOutput)
  const chat = (args: readonly string[] = [], onOutput?: (text: string) => void): Promise<Ran> =>
    curl('/v1/chat/completions', [...JSON_BODY, '-d', JSON.stringify(CHAT), ...args], onOutput)
  return { ...sidecar, session, port: Number(new URL(sidecar.url).port), curl, chat }
}

/** What comes back for exactly these bytes. */
async function raw(port: number, bytes: string): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.end(bytes)
  return text(socket)
}

await t.test('curl without a certificate is answered as the agent, with token and proof', async (t) => {
  const gateway = await sharedGateway(t)
  const { chat } = await sidecarOf(t, gateway)
  const seen = arrivals(t, gateway)
  const ran = await chat([
    '-H',
    'authorization: Bearer sk-mine',
    '-H',
    'cookie: mine=1',
    '-H',
    'x-api-key: sk-mine',
  ])
  t.equal(ran.code, 0, ran.err)
  t.equal(JSON.parse(ran.out).choices[0].message.content, 'hello')
  const [row] = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
  t.match(row, { principal_id: 'acme::bot', dpop_jkt: /^[\w-]{43}$/ })
  t.notMatch(JSON.stringify(seen), /mine/)
  t.ok(
    seen.every(
      ({ headers }) => headers['accept-encoding'] === 'identity' || headers.accept === 'application/json',
    ),
  )
})

await t.test('a caller’s own vendor key goes where the gateway passes it on, and nowhere else', async (t) => {
  const passing = `plugin: llm
default_provider: own
providers:
  - {name: own, dialect: openai, base_url: UPSTREAM/v1, auth: passthrough, models: ["gpt-*"]}
  - {name: ours, dialect: openai, base_url: UPSTREAM/v1, api_key: sk-upstream, models: ["ours-*"]}
`
  const gateway = await testGateway(t, { files: { '50-llm.yaml': passing } })
  const { chat, curl } = await sidecarOf(t, gateway)
  const seen = arrivals(t, gateway)
  const keys = ['-H', 'authorization: Bearer sk-mine', '-H', 'x-api-key: sk-mine-2']
  t.equal(JSON.parse((await chat(keys)).out).choices[0].message.content, 'hello')
  t.match(gateway.upstream.seen.at(-1)?.headers, {
    authorization: 'Bearer sk-mine',
    'x-api-key': 'sk-mine-2',
  })
  const { 'cdn-loop': _, ...sent } = gateway.upstream.seen.at(-1)?.headers ?? {}
  t.notMatch(JSON.stringify(sent), /sallyport-|dpop/i)

  gateway.upstream.answer = (res) => {
    res.writeHead(401, { 'content-type': 'application/json' })
    res.end('{"error":{"message":"Incorrect API key provided: sk-mine"}}')
  }
  const refused = await chat([...keys, '-w', '\n%{http_code}'])
  t.match(refused.out, /Incorrect API key provided: sk-mine.*\n401$/s, 'in the provider’s own words')
  gateway.upstream.answer = completion

  const body = ['-d', JSON.stringify({ ...CHAT, model: 'ours-1' })]
  await curl('/v1/chat/completions', [...JSON_BODY, ...body, ...keys])
  t.equal(gateway.upstream.seen.at(-1)?.headers.authorization, 'Bearer sk-upstream')
  t.notMatch(JSON.stringify(gateway.upstream.seen.at(-1)?.headers), /sk-mine/)

  for (const own of ['DPoP eyJ', 'Bearer x.eyJjbmYiOnt9fQ.y', 'Bearer x.eyAiY25mIjp7fX0.y']) {
    const { out } = await chat(['-H', `authorization: ${own}`])
    t.match(out, 'provider_not_configured', 'a token of ours is nobody’s vendor key')
  }
  const before = seen.length
  await curl('/v1/models', keys)
  await curl('/v1/mcp', [...JSON_BODY, '-d', '{}', ...keys])
  t.ok(seen.length > before)
  t.notMatch(JSON.stringify(seen.slice(before)), /sk-mine/, 'only calls that a provider gets have it')
})

await t.test('a refusal by the gateway arrives as it is', async (t) => {
  const gateway = await testGateway(t)
  const { chat, curl } = await sidecarOf(t, gateway)
  await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: [] })
  const ran = await chat(['-w', '\n%{http_code} %header{x-should-retry}'])
  const [body = '', last] = ran.out.split('\n')
  t.equal(last, '403 false')
  t.match(JSON.parse(body), { reason: 'capability_missing', required_capability: 'llm.chat' })
  const lost = await curl('/nowhere?x=1', ['-w', '\n%{http_code}'])
  t.match(lost.out, /"reason":"not_found".*\n404$/)
})

await t.test('curl -N sees each event when the provider sends it', async (t) => {
  const gateway = await sharedGateway(t)
  const { chat } = await sidecarOf(t, gateway)
  const heard = new Map<string, () => void>()
  const until = (event: string): Promise<void> => new Promise((resolve) => heard.set(event, resolve))
  gateway.upstream.answer = async (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    // The next event is sent when curl has printed the one before: nothing on the way may hold it back.
    for (const event of ['one', 'two', 'three']) {
      const printed = until(event)
      res.write(`data: {"${event}": true}\n\n`)
      await printed
    }
    res.end('data: [DONE]\n\n')
  }
  const ran = await chat(['-N'], (printed) => {
    for (const [event, resolve] of heard) if (printed.includes(event)) resolve()
  })
  t.equal(ran.code, 0)
  t.equal(ran.out, 'data: {"one": true}\n\ndata: {"two": true}\n\ndata: {"three": true}\n\ndata: [DONE]\n\n')
})

await t.test('T4 an upstream that is cut off is cut off here: curl says 18', async (t) => {
  const gateway = await sharedGateway(t)
  const { chat } = await sidecarOf(t, gateway)
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': 'text/event-stream' })
    res.write('data: {"one": true}\n\n', () => res.destroy())
  }
  const ran = await chat(['-N'])
  t.equal(ran.code, 18, ran.err)
  t.match(ran.out, /^data: \{"one": true\}\n\n/)
})

await t.test(
  'a client that hangs up ends the call at the provider, before its first byte or after',
  async (t) => {
    for (const answers of [false, true]) {
      const gateway = await sharedGateway(t)
      const { port } = await sidecarOf(t, gateway)
      const [arrived, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
      gateway.upstream.answer = (res) => {
        res.once('close', ended.resolve)
        if (answers)
          res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"one": true}\n\n')
        arrived.resolve()
      }
      const body = JSON.stringify({ ...CHAT, stream: true })
      const socket = connect(port, '127.0.0.1')
      socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:${port}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      )
      await arrived.promise
      if (answers) await once(socket, 'data')
      socket.destroy()
      await ended.promise
    }
  },
)

await t.test('a large body goes up whole, whether its length is said beforehand or not', async (t) => {
  const gateway = await sharedGateway(t)
  const { curl } = await sidecarOf(t, gateway)
  const content = 'a'.repeat(3 * 1024 * 1024)
  const body = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content }] })
  const file = t.testdir({ 'body.json': body })
  for (const more of [[], ['-H', 'transfer-encoding: chunked']]) {
    const ran = await curl('/v1/chat/completions', [
      ...JSON_BODY,
      ...more,
      '--data-binary',
      `@${file}/body.json`,
    ])
    t.equal(ran.code, 0, ran.err)
    t.equal(JSON.parse(ran.out).object, 'chat.completion')
  }
  t.same(
    gateway.upstream.seen.map((seen) => seen.body.length),
    [body.length, body.length],
  )
})

await t.test(
  'only a program on this machine may call: other Host, Origin and Sec-Fetch-Site are refused 403',
  async (t) => {
    const gateway = await sharedGateway(t)
    const { port, curl } = await sidecarOf(t, gateway)
    const seen = arrivals(t, gateway)
    const refused = [
      'host: evil.example',
      `host: evil.example:${port}`,
      'host: 127.0.0.1',
      `host: 127.0.0.1:${port + 1}`,
      `host: localhost.evil.example:${port}`,
      `host: 127.0.0.1:${port}@evil.example`,
      `host: [::1%25eth0]:${port}`,
      'host;',
      'origin: https://evil.example',
      'origin: null',
      `origin: https://127.0.0.1:${port}`,
      `origin: http://127.0.0.1:${port + 1}`,
      'sec-fetch-site: cross-site',
      'sec-fetch-site: same-site',
    ]
    for (const header of refused) {
      const ran = await curl('/v1/models', ['-H', header, '-w', '\n%{http_code}'])
      const [body = '', status] = ran.out.split('\n')
      t.equal(status, '403', header)
      t.match(JSON.parse(body), {
        type: 'error',
        error: { type: 'permission_error', message: String },
        reason: /^(host|origin)_not_local$/,
      })
      t.notMatch(body, 'request_id', 'no log has a line of it')
    }
    t.equal(seen.length, 0)
    for (const header of [
      `host: LOCALHOST:${port}`,
      `host: [::1]:${port}`,
      `origin: http://localhost:${port}`,
    ]) {
      const ran = await curl('/v1/models', ['-H', header, '-w', '\n%{http_code}'])
      t.match(ran.out, /\n200$/, header)
    }
    const crossed = await curl('/v1/models', [
      '-i',
      '-X',
      'OPTIONS',
      '-H',
      `origin: http://localhost:${port}`,
    ])
    t.notMatch(crossed.out, /access-control-allow/i, 'no page is ever invited')
  },
)

await t.test('a target that is another URL, an upgrade and a tunnel lead nowhere', async (t) => {
  const gateway = await sharedGateway(t)
  const { port } = await sidecarOf(t, gateway)
  const seen = arrivals(t, gateway)
  const host = `Host: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`
  t.match(await raw(port, `GET http://evil.example/v1/models HTTP/1.1\r\n${host}`), /^HTTP\/1\.1 400 /)
  t.match(await raw(port, `GET //evil.example/v1/models HTTP/1.1\r\n${host}`), /^HTTP\/1\.1 400 /)
  t.notMatch(await raw(port, `CONNECT evil.example:443 HTTP/1.1\r\n${host}`), /^HTTP\/1\.1 2/)
  t.equal(seen.length, 0)
})

await t.test('hop-by-hop headers, and those that Connection names, go neither way', async (t) => {
  const gateway = await sharedGateway(t)
  const { curl } = await sidecarOf(t, gateway)
  const seen = arrivals(t, gateway)
  const hop = [
    'Connection: x-hop, keep-alive',
    'x-hop: 1',
    'Keep-Alive: 5',
    'TE: trailers',
    'Upgrade: h2c',
    'x-end: 1',
  ]
  const ran = await curl('/v1/models', ['-i', ...hop.flatMap((header) => ['-H', header])])
  t.match(ran.out, /^HTTP\/1\.1 200 /)
  t.notMatch(ran.out, /strict-transport-security/i, 'plain HTTP must not be told that it was TLS')
  const last = seen.at(-1)?.headers ?? {}
  t.equal(last['x-end'], '1')
  t.same(
    Object.keys(last).filter((name) => ['x-hop', 'te', 'upgrade', 'origin', 'cookie'].includes(name)),
    [],
  )
})

await t.test('a gateway that is not there is a 502 with a sentence, and comes back', async (t) => {
  const gateway = await testGateway(t)
  const { chat } = await sidecarOf(t, gateway)
  gateway.upstream.answer = completion
  t.equal((await chat()).code, 0)
  await gateway.close(0)
  const ran = await chat(['-w', '\n%{http_code}'])
  const [body = '', status] = ran.out.split('\n')
  t.equal(status, '502')
  t.match(JSON.parse(body), {
    type: 'error',
    error: { type: 'api_error', code: 'gateway_unreachable' },
    message: /^The gateway https:\/\/.* gave no answer \(/,
    reason: 'gateway_unreachable',
  })
})

await t.test('it listens on loopback and nowhere else', async (t) => {
  const gateway = await sharedGateway(t)
  const session = clientSession(readIdentity(await identityDirectory(t, gateway)))
  for (const host of ['0.0.0.0', '::', '', 'example.org', '127.0.0.2']) {
    await t.rejects(startSidecar(session, host, 0), { message: /it listens on loopback only, not on / }, host)
  }
  const { url, close } = await startSidecar(session, '::1', 0)
  t.match(url, /^http:\/\/\[::1\]:\d+$/)
  await close(0)
  await session.close()
})

await t.test(
  'its own names are taken in any spelling, also on the port that goes without saying',
  async (t) => {
    const gateway = await sharedGateway(t)
    const { port, session } = await sidecarOf(t, gateway)
    const ask = (lines: readonly string[], to = port): Promise<string> => {
      const socket = connect(to, '127.0.0.1')
      socket.write(`${['GET /health HTTP/1.1', ...lines, 'connection: close'].join('\r\n')}\r\n\r\n`)
      return text(socket)
    }
    for (const host of ['LOCALHOST', 'localhost.', '127.0.0.1', '[::1]', '[0:0:0:0:0:0:0:1]']) {
      t.match(await ask([`host: ${host}:${port}`]), /^HTTP\/1\.1 200 /, host)
      t.match(await ask([`host: ${host}`]), /^HTTP\/1\.1 403 /, `${host}, of another port`)
    }
    const ours = `host: localhost:${port}`
    t.match(await ask([ours, `origin: http://localhost:${port}`]), /^HTTP\/1\.1 200 /)
    for (const origin of [
      'http://localhost',
      `https://localhost:${port}`,
      'null',
      'http://localhost.evil.example',
    ])
      t.match(await ask([ours, `origin: ${origin}`]), /^HTTP\/1\.1 403 /, origin)
    const on80 = await startSidecar(session, '127.0.0.1', 80).catch(() => null)
    if (on80 === null) {
      t.comment('port 80 cannot be listened on here')
      return
    }
    t.teardown(() => on80.close(0))
    for (const host of ['localhost', '127.0.0.1:80', '[::1]', 'localhost:'])
      t.match(await ask([`host: ${host}`, `origin: http://localhost`], 80), /^HTTP\/1\.1 200 /, host)
    t.match(await ask(['host: localhost:8080'], 80), /^HTTP\/1\.1 403 /)
  },
)

await t.test('an answer whose last event came is whole, also if the gateway breaks off then', async (t) => {
  const hi = 'data: {"one": true}\n\n'
  const cases = [
    [`${hi}data: [DONE]\n\n`, true],
    [`${hi}data: [DONE]\r\n\r\n: bye\r\n`, false],
    ['event: message_stop\ndata: {"type":"message_stop"}\n\n', true],
    [`event: response.completed\ndata: {"output":"${'x'.repeat(300_000)}"}\n\n`, true],
    [hi, false],
    [`${hi}data: [DONE]`, false],
    ['data: {"text":"data: [DONE]"}\n\n', false],
    [`event: error\ndata: {}\n\n`, false],
    [`data: [DONE]\n\n${hi}`, false],
  ] as const
  for (const [body, whole] of cases) {
    const upstream = await testUpstream(t, (res) => {
      res.writeHead(200, { 'content-type': 'text/event-stream' })
      // Cut anywhere.
      res.write(body.slice(0, 9))
      setImmediate(() => res.write(body.slice(9), () => res.destroy()))
    })
    const dispatcher = new Agent()
    const session = { origin: upstream.url, dispatcher } as unknown as ClientSession
    const sidecar = await startSidecar(session, '127.0.0.1', 0)
    t.teardown(() => sidecar.close(0))
    t.teardown(() => dispatcher.destroy())
    const { code, out } = await run('curl', ['-sSN', '--noproxy', '*', sidecar.url])
    t.equal(out, body)
    t.equal(code, whole ? 0 : 18, body.slice(-40))
  }
})
