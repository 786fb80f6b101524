// What the client takes http-proxy-3 to do, and what the library takes of its stand-ins: a release that reads another
// member, sends by itself, adds a header, or asks the environment fails here, and not in production.
import { ProxyServer } from 'http-proxy-3'
import t from 'tap'
import { OWN_AUTHORITY } from '../../../../plugins/call-authority.ts'
import {
  ANSWER_STAND_IN,
  bodyStandIn,
  PROXY_SERVER_OPTIONS,
  REQUEST_STAND_INS,
  RESPONSE_STAND_IN,
} from '../../../../proxy/llm/upstream/client.ts'

const BODY = Buffer.from('{"model":"m"}')
const TARGET = new URL('https://up.example:8443/v1//a%2e/b?c=d&e')

/** What the library did with each object: names of members, or a verb and a name for all but reading. */
interface Uses {
  readonly request: Set<string>
  readonly headers: Set<string>
  readonly response: Set<string>
  readonly body: Set<string>
  readonly environment: Set<string>
}

/** The same object, with every use of it noted. */
function noted<T extends object>(target: T, uses: Set<string>): T {
  return new Proxy(target, {
    get: (_, name) => {
      uses.add(String(name))
      return Reflect.get(target, name)
    },
    has: (_, name) => {
      uses.add(`has ${String(name)}`)
      return Reflect.has(target, name)
    },
    ownKeys: () => {
      uses.add('each')
      return Reflect.ownKeys(target)
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

type Fetch = typeof fetch

/** Sends one request through the library, as the client does. Resolves when the library has done with it. */
async function send(method: 'GET' | 'POST', by: Fetch) {
  const uses: Uses = {
    request: new Set(),
    headers: new Set(),
    response: new Set(),
    body: new Set(),
    environment: new Set(),
  }
  const request = noted(
    Object.assign({}, REQUEST_STAND_INS[method], { headers: noted({}, uses.headers) }),
    uses.request,
  )
  const buffer = noted(bodyStandIn([BODY], OWN_AUTHORITY), uses.body)
  const events: string[] = []
  const failed: unknown[] = []
  const sent: Parameters<Fetch>[] = []
  const proxy = new ProxyServer({ ...PROXY_SERVER_OPTIONS })
  const emit = proxy.emit.bind(proxy)
  const done = Promise.withResolvers<void>()
  Object.assign(proxy, {
    emit: (name: string, ...args: unknown[]): boolean => {
      events.push(name)
      if (name === 'end') done.resolve()
      return Reflect.apply(emit, proxy, [name, ...args])
    },
  })
  const environment = process.env
  process.env = noted(environment, uses.environment)
  try {
    const fetch: Fetch = (...args) => {
      sent.push(args)
      return by(...args)
    }
    // The library takes these for a request and a response.
    proxy.web(
      request as typeof REQUEST_STAND_INS.GET,
      noted(RESPONSE_STAND_IN, uses.response),
      { target: TARGET, buffer, fetch },
      (error) => {
        failed.push(error)
        done.resolve()
      },
    )
  } finally {
    process.env = environment
  }
  await done.promise
  return { uses: listed(uses), events, failed, sent, buffer }
}

const ON_DISPATCH = {
  request: ['headers', 'httpVersionMajor', 'method', 'on', 'url'],
  headers: [':authority', 'each'],
  body: [],
  environment: [],
}

for (const method of ['POST', 'GET'] as const) {
  await t.test(`of a ${method} the library uses these members and no other`, async (t) => {
    const answer = new Set<string>()
    const by: Fetch = () => Promise.resolve(noted(ANSWER_STAND_IN, answer))
    const { uses, events, failed, sent, buffer } = await send(method, by)
    t.strictSame([...answer].toSorted(), ['body', 'headers', 'status', 'statusText', 'then'])
    t.strictSame(uses, { ...ON_DISPATCH, response: ['headersSent', 'writableEnded'] })
    t.strictSame(events, ['start', 'proxyRes', 'end'])
    t.strictSame(failed, [])
    const [[target, init] = []] = sent
    t.equal(sent.length, 1)
    t.equal(target, TARGET.href, 'the target alone decides where it goes')
    t.strictSame(Object.keys(init ?? {}).toSorted(), ['body', 'headers', 'method'])
    t.equal(init?.method, method)
    t.ok(Object.is(init?.body, buffer), 'the body is handed on as it is')
    t.strictSame([...new Headers(init?.headers)], [], 'there are no headers')
  })
}

await t.test('an error of the function that sends is told to the callback alone, as it is', async (t) => {
  const error = new Error('the connection broke')
  const { uses, events, failed } = await send('POST', () => Promise.reject(error))
  t.strictSame(uses, { ...ON_DISPATCH, response: [] })
  t.strictSame(events, ['start'])
  t.ok(failed[0] === error && failed.length === 1)
})

await t.test('it is sent once, whatever the status that the library is told', async (t) => {
  for (const status of [204, 307, 503]) {
    const headers = { location: 'https://elsewhere.example/' }
    const { sent } = await send('POST', () => Promise.resolve(new Response(null, { status, headers })))
    t.equal(sent.length, 1)
  }
})
