// What the fence takes http-proxy-3 to do, and what the library takes of the fence's stand-ins: a release
// that reads another member, emits other events or asks the environment more than this fails here, and not in
// production.
import { once } from 'node:events'
import { ClientRequest, IncomingMessage } from 'node:http'
import { Socket } from 'node:net'
import { ProxyServer } from 'http-proxy-3'
import t, { type Test } from 'tap'
import { collect } from '../../../../plugins/collect.ts'
import { bodyStandIn, FENCE, requestStandIn, responseStandIn } from '../../../../proxy/llm/upstream/client.ts'
import { answer, nobody, rawUpstream } from '../../../support/llm/upstreams.ts'

const BODY = Buffer.from('{"model":"m"}')
const HEADERS = {
  GET: { host: 'up.example' },
  POST: { host: 'up.example', 'content-length': String(BODY.length) },
}
const ON_DISPATCH = ['headers', 'httpVersionMajor', 'method', 'on', 'url']
/** Each of them, to copy it, and one that only HTTP/2 has. */
const headerReads = (method: 'GET' | 'POST'): readonly string[] =>
  [':authority', ...Object.keys(HEADERS[method])].toSorted()

/** What the library did with each stand-in: names of members, or a verb and a name for all but reading. */
interface Uses {
  readonly request: Set<string>
  readonly headers: Set<string>
  readonly response: Set<string>
  readonly body: Set<string>
  readonly environment: Set<string>
}

/**
 * The same object, with every use of it noted. Methods run on the object itself: what they use there is
 * Node's affair.
 */
function noted<T extends object>(target: T, uses: Set<string>): T {
  return new Proxy(target, {
    get: (_, name) => {
      uses.add(String(name))
      const value: unknown = Reflect.get(target, name)
      return typeof value === 'function' ? value.bind(target) : value
    },
    has: (_, name) => {
      uses.add(`has ${String(name)}`)
      return Reflect.has(target, name)
    },
    set: (_, name, value) => {
      uses.add(`set ${String(name)}`)
      return Reflect.set(target, name, value)
    },
    deleteProperty: (_, name) => {
      uses.add(`delete ${String(name)}`)
      return Reflect.deleteProperty(target, name)
    },
  })
}

const listed = (uses: Uses): Record<keyof Uses, readonly string[]> => ({
  request: [...uses.request].toSorted(),
  headers: [...uses.headers].toSorted(),
  response: [...uses.response].toSorted(),
  body: [...uses.body].toSorted(),
  environment: [...uses.environment].toSorted(),
})

/** Sends one request through the library, as the fence does. */
function send(url: string, method: 'GET' | 'POST' = 'POST') {
  const uses: Uses = {
    request: new Set(),
    headers: new Set(),
    response: new Set(),
    body: new Set(),
    environment: new Set(),
  }
  const request = requestStandIn({ method, headers: HEADERS[method] })
  request.headers = noted(request.headers, uses.headers)
  const response = responseStandIn()
  const standIns = { request: noted(request, uses.request), response: noted(response, uses.response) }
  const events: string[] = []
  const proxy = new ProxyServer({ ...FENCE })
  const emit = proxy.emit.bind(proxy)
  Object.assign(proxy, {
    emit: (name: string, ...args: unknown[]): boolean => {
      events.push(name)
      return Reflect.apply(emit, proxy, [name, ...args])
    },
  })
  const answered = once(proxy, 'proxyRes')
  const sending = once(proxy, 'proxyReq')
  const failed = Promise.withResolvers<readonly unknown[]>()
  const environment = process.env
  process.env = noted(environment, uses.environment)
  try {
    proxy.web(
      standIns.request,
      standIns.response,
      { target: new URL(url), buffer: noted(bodyStandIn(method === 'GET' ? [] : [BODY], false), uses.body) },
      (...args) => failed.resolve(args),
    )
  } finally {
    process.env = environment
  }
  return { uses, standIns, response, events, answered, sending, failed: failed.promise }
}

for (const method of ['POST', 'GET'] as const) {
  await t.test(`of a ${method} that is answered, the library uses these members and no other`, async (t) => {
    const { url, seen } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
    const { uses, standIns, events, answered } = send(`${url}/x?y=1`, method)
    const [incoming, ...rest]: unknown[] = await answered
    if (!(incoming instanceof IncomingMessage)) throw new Error('proxyRes brings an answer')
    t.strictSame(incoming.statusCode, 200)
    t.ok(rest[0] === standIns.request && rest[1] === standIns.response, 'proxyRes names its stand-ins')
    t.strictSame(String(await collect(incoming, 100)), '{}', 'nobody else reads the answer')
    t.strictSame(listed(uses), {
      request: ON_DISPATCH,
      headers: headerReads(method),
      response: ['finished', 'headersSent', 'on'],
      body: ['pipe'],
      environment: ['FORCE_FETCH_PATH'],
    })
    t.strictSame(events, ['start', 'proxyReq', 'proxyRes', 'end'])
    t.match(seen[0]?.head, new RegExp(`^${method} /v1/x\\?y=1 HTTP/1\\.1\r\n`))
    t.equal(seen[0]?.body.toString(), method === 'GET' ? '' : String(BODY))
  })
}

await t.test('proxyReq comes once a socket is there, with the request before anything is sent', async (t) => {
  const { url } = await rawUpstream(t, (socket) => socket.write(answer(200, '{}')))
  const { standIns, sending, answered } = send(url)
  const [outgoing, request, response, options, socket]: unknown[] = await sending
  t.ok(outgoing instanceof ClientRequest && outgoing.reusedSocket === false)
  t.ok(request === standIns.request && response === standIns.response)
  t.match(options, { ...FENCE, target: { href: url } })
  t.ok(socket instanceof Socket && socket.connecting, 'which may still be connecting')
  await answered
})

/** Failures before an answer, and the code of the error that the callback gets. */
const FAILURES: readonly (readonly [string, (t: Test) => Promise<string>, string])[] = [
  ['is refused', nobody, 'ECONNREFUSED'],
  [
    'dies before an answer',
    async (t) => (await rawUpstream(t, (socket) => socket.resetAndDestroy())).url,
    'ECONNRESET',
  ],
]

for (const [what, place, code] of FAILURES) {
  await t.test(`a connection that ${what} is told to the callback alone`, async (t) => {
    const { uses, events, failed, standIns } = send(await place(t))
    const [error, request, response] = await failed
    t.match(error, { code })
    t.ok(request === standIns.request && response === standIns.response)
    t.strictSame(listed(uses), {
      request: [...ON_DISPATCH, 'socket'].toSorted(),
      headers: headerReads('POST'),
      response: ['on'],
      body: ['pipe'],
      environment: ['FORCE_FETCH_PATH'],
    })
    t.notOk(events.some((name) => ['error', 'econnreset', 'proxyRes'].includes(name)))
  })
}

await t.test('the close of the response stand-in destroys the request', async (t) => {
  const { promise: asked, resolve: ask } = Promise.withResolvers<void>()
  const { url, closed } = await rawUpstream(t, () => ask())
  const { uses, response, sending, failed } = send(url)
  await asked
  response.emit('close')
  await closed
  const [outgoing]: unknown[] = await sending
  t.ok(outgoing instanceof ClientRequest && outgoing.destroyed)
  t.match(await failed, [{ code: 'ECONNRESET' }])
  t.strictSame(listed(uses).response, ['on', 'writableFinished'])
})
