import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import { type AddressInfo, connect } from 'node:net'
import type { Duplex } from 'node:stream'
import t, { type Test } from 'tap'
import { parseProxyUrl, proxyVariable } from '../../../proxy/egress/proxy-tunnel.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import { readWholeBody } from '../../../proxy/llm/upstream/answer.ts'
import { openUpstream } from '../../../proxy/llm/upstream/client.ts'
import { nextSteps } from '../../../proxy/wiring/next-steps.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { trusted } from '../../support/llm/trusted.ts'
import { CATALOGUE } from '../../support/permit.ts'
import { testUpstream } from '../../support/upstream.ts'

const HEAD = 'HTTP/1.1 200 Connection established\r\nvia: a proxy\r\n\r\n'

async function listening(t: Test, server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const open = new Set<Duplex>()
  server.on('connection', (socket: Duplex) => open.add(socket.on('error', () => {})))
  t.teardown(() => {
    for (const socket of open) socket.destroy()
    server.close()
  })
  // Proven: it listens on a port.
  return (server.address() as AddressInfo).port
}

/** A proxy that leads every tunnel to one port, or answers with `refusal`. */
async function proxyTo(t: Test, port: number, { refusal = '', server = createServer() } = {}) {
  const asked: { readonly target: string; readonly login: string }[] = []
  server.on('connect', (req: IncomingMessage, socket: Duplex) => {
    asked.push({ target: req.url ?? '', login: req.headers['proxy-authorization'] ?? '' })
    socket.on('error', () => {})
    if (refusal !== '') return void socket.end(refusal)
    const tunnel = connect(port, '127.0.0.1', () => {
      socket.write(HEAD)
      socket.pipe(tunnel).pipe(socket)
    })
    tunnel.on('error', () => socket.destroy())
    socket.on('close', () => tunnel.destroy())
  })
  return { port: await listening(t, server), asked }
}

await t.test('a provider is reached by the proxy that its file names, and by no other', async (t) => {
  const provider = await testUpstream(t)
  const upstreamPort = Number(new URL(provider.url).port)
  const proxy = await proxyTo(t, upstreamPort)
  const wary = await proxyTo(t, upstreamPort, {
    refusal: 'HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n',
  })
  const odd = await proxyTo(t, upstreamPort, { refusal: 'SSH-2.0-OpenSSH_9.9\r\n\r\n' })
  const gone = await proxyTo(t, upstreamPort)
  const provided = (name: string, base: string, setting: string) =>
    `  - {name: ${name}, dialect: openai, base_url: "${base}", api_key: sk-1, models: [${name}]${setting}}\n`
  const through = (port: number, login = '') => `, proxy: "http://${login}127.0.0.1:${port}"`
  const far = 'http://provider.test/v1'
  const files = {
    '50-llm.yaml': [
      'plugin: llm\nproviders:\n',
      provided('named', far, through(proxy.port, 'grace:s%3Acret@')),
      provided('set', far, ', proxy: env'),
      provided('exempt', provider.url, ', proxy: env'),
      provided('wary', far, through(wary.port)),
      provided('odd', far, through(odd.port)),
      provided('down', far, through(1)),
      provided('direct', 'http://127.0.0.1:1/v1', ', connect_timeout_ms: 5000'),
      provided('unused', 'http://192.0.2.1:9/v1', ', connect_timeout_ms: 20'),
    ].join(''),
  }
  const env = { http_proxy: `http://127.0.0.1:${gone.port}`, NO_PROXY: 'elsewhere.test' }
  const gateway = await testGateway(t, { files, env })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const chat = (model: string) =>
    gateway.call(bot, 'POST', '/v1/chat/completions', { body: { ...CHAT, model } })
  for (const model of ['named', 'named', 'set', 'exempt']) t.equal((await chat(model)).status, 200, model)
  t.ok(provider.seen.some(({ headers }) => headers.host === 'provider.test'))
  t.match(proxy.asked, [{ target: 'provider.test:80', login: `Basic ${btoa('grace:s:cret')}` }])
  t.match(gone.asked, [{ target: 'provider.test:80', login: '' }], 'not for this machine')
  for (const [model, said] of [
    ['wary', /the proxy before it answered 407: it wants credentials/],
    ['odd', /the proxy before it gave no connection/],
    ['down', /the proxy before it gave no connection/],
    ['unused', /http_proxy is set where the gateway runs, and not used/],
    ['direct', /^The provider could not be reached\. Try again shortly\.$/],
  ] as const) {
    t.match(
      await chat(model),
      { status: 502, json: { reason: 'provider_unreachable', message: said } },
      model,
    )
  }
  const steps = await nextSteps(gateway.settings, gateway)
  t.match(steps, `calls of named go by the proxy http://127.0.0.1:${proxy.port} (of its file)`)
  t.match(steps, `calls of set go by the proxy http://127.0.0.1:${gone.port} (of http_proxy)`)
  t.match(steps, 'http_proxy is not used for unused: proxy: env')
  t.match(JSON.stringify(gateway.log), `the proxy http://127.0.0.1:${wary.port} answered`)
  t.notMatch(steps + JSON.stringify(gateway.log), /s%3Acret|s:cret|grace/, 'credentials stand nowhere')
})

await t.test('TLS goes through the tunnel, to a proxy that itself speaks TLS', async (t) => {
  const certificate = await trusted(t)
  const provider = createTlsServer(certificate, (_req, res) => void res.end('{}'))
  const server = createTlsServer(certificate)
  const proxy = await proxyTo(t, await listening(t, provider), { server })
  const tunnel = parseProxyUrl(`https://127.0.0.1:${proxy.port}`)
  if (!tunnel) throw new Error('the URL is one of a proxy')
  const upstream = openUpstream()
  t.teardown(() => upstream.close())
  const call = (host: string) =>
    upstream.call({
      permit: CATALOGUE,
      method: 'GET',
      url: new URL(`https://${host}/v1/models`),
      headers: ['host', host],
      body: [],
      timeouts: { connectMs: 60_000, firstByteMs: 60_000, idleMs: 60_000 },
      proxy: tunnel,
      hangup: new CallHangup(),
    })
  t.equal(String(await readWholeBody(await call('127.0.0.1'), 100)), '{}')
  t.match(proxy.asked, [{ target: '127.0.0.1:443' }])
  await t.rejects(call('another.test'), { kind: 'connect', message: /ALTNAME/ }, 'the provider is verified')
})

await t.test('the environment names a proxy as other programs read it', async (t) => {
  const env = { HTTPS_PROXY: 'one:1', https_proxy: '', all_proxy: 'http://two:2' }
  const found = (url: string, more: Record<string, string> = {}) =>
    proxyVariable(new URL(url), { ...env, ...more })
  t.same(found('https://a.test'), { name: 'HTTPS_PROXY', value: 'http://one:1' })
  t.same(found('http://a.test'), { name: 'all_proxy', value: 'http://two:2' })
  for (const [no, exempt, asked] of [
    ['*', ['https://a.test'], []],
    ['a.test', ['https://a.test', 'https://b.a.test', 'https://A.test.'], ['https://ba.test']],
    ['x, .a.test', ['https://a.test', 'https://b.a.test'], ['https://a.test.example']],
    ['*.a.test', ['https://b.a.test'], ['https://c.test']],
    ['a.test:8443', ['https://a.test:8443'], ['https://a.test']],
    ['a.test:443', ['https://a.test'], ['https://a.test:8443']],
    ['10.0.0.0/8', ['https://10.1.2.3'], ['https://11.1.2.3', 'https://a.test']],
    ['192.0.2.7', ['https://192.0.2.7'], ['https://192.0.2.70']],
    ['2001:db8::/32,[::2]:443', ['https://[2001:db8::1]', 'https://[::2]'], ['https://[2001:db9::1]']],
    ['10.0.0.0/99,/8,nonsense/x', [], ['https://10.1.2.3']],
    ['', ['https://localhost', 'https://127.8.0.1', 'https://[::1]:9'], ['https://localhost.test']],
  ] as const) {
    for (const url of exempt) t.equal(found(url, { NO_PROXY: no }), null, `${no}: ${url}`)
    for (const url of asked) t.not(found(url, { no_proxy: no }), null, `${no}: ${url}`)
  }
  for (const url of ['socks5://a:1', 'a:1', 'http://', 'http://a/b', 'http://a?b', 'file:///a', '']) {
    t.equal(parseProxyUrl(url), null, url)
  }
  t.match(parseProxyUrl('HTTPS://u@[::1]'), { shown: 'https://[::1]', hostname: '::1', port: 443 })
  t.match(parseProxyUrl('http://u:100%@p:3128'), { authorization: `Basic ${btoa('u:100%')}` })
})
