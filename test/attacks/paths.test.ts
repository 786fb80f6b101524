import t from 'tap'
import { ADMIN_SECRET, CHAT, testGateway } from '../support/gateway.ts'
import { rawAnswer, requestBytes, statuses } from '../support/raw.ts'

const BODY = JSON.stringify(CHAT)

/** Spellings that some other server, proxy or URL parser takes for `path`, and this service never does. */
function variants(path: string): readonly string[] {
  const [, first = '', ...others] = path.split('/')
  const rest = others.map((segment) => `/${segment}`).join('')
  const last = path.slice(path.lastIndexOf('/') + 1)
  const parent = path.slice(0, -last.length)
  return [
    `/${path}`,
    `//evil.example${path}`,
    `/.${path}`,
    `/..${path}`,
    `/x/..${path}`,
    `/x/%2e%2e${path}`,
    `/%2e${path}`,
    `/%2f${path}`,
    `${path}/`,
    `${path}//`,
    `${path}/.`,
    `${path}/..`,
    `${path}/x/..`,
    `${path}/%2e`,
    `${path};`,
    `${path};a=b`,
    `${path}%20`,
    `${path}%00`,
    `${path}%00.json`,
    `${path}.json`,
    `${path}%3fa=b`,
    `${path}%23a`,
    `${path}#a`,
    `${path}\\`,
    `${path}%5c`,
    `${path}%0d%0a`,
    `${path}%09`,
    `${path}..;/`,
    `${path},`,
    `${path}&a=b`,
    `${path}:443`,
    `${path}@evil.example`,
    `${path}~`,
    `${path}.bak`,
    `${path}/*`,
    `${path}'`,
    `${path}"`,
    `${path}|`,
    `${path}=`,
    `${path}%2e%2e`,
    `${path}%u0020`,
    `${path}\u200b`,
    path.toUpperCase(),
    `/${first.toUpperCase()}${rest}`,
    `${parent}${last[0]?.toUpperCase()}${last.slice(1)}`,
    `${parent}%${last.charCodeAt(0).toString(16)}${last.slice(1)}`,
    `${parent}%25${last.charCodeAt(0).toString(16)}${last.slice(1)}`,
    `/%${first.charCodeAt(0).toString(16)}${first.slice(1)}${rest}`,
    `${parent}/${last}`,
    `${parent}./${last}`,
    `${parent}x/../${last}`,
    `${parent}%2f${last}`,
    `${path.replaceAll('/', '\\')}`,
    `/${path.slice(1).replaceAll('/', '\\')}`,
    `/${path.slice(1).replaceAll('/', '%2f')}`,
    `/${path.slice(1).replaceAll('/', '%2F')}`,
    `/${path.slice(1).replaceAll('/', '%252f')}`,
    `/${path.slice(1).replaceAll('/', '%5c')}`,
    `/${path.slice(1).replaceAll('/', '\u2215')}`,
    `${path}\u00a0`,
    `${parent}\uff43${last.slice(1)}`,
    path.slice(1),
    `localhost${path}`,
    `https://localhost${path}`,
    `http:${path}`,
    `?${path}`,
    `*${path}`,
    `/?${path}`,
    `/index.html?path=${path}`,
    `/v1${path}`,
    `/v1/v1/..${path}`,
    `/api${path}`,
    `/health/..${path}`,
    `/health/..%2f${path.slice(1)}`,
    `/health;${path}`,
  ]
}

const DOORS = [
  ['POST', '/v1/chat/completions'],
  ['POST', '/v1/admin/agents'],
  ['GET', '/metrics'],
] as const

for (const [method, path] of DOORS) {
  t.test(`T17 threat 32: ${path} has one spelling`, async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    // Whatever a door asks for is there: certificate, capability, secret, a body that both would take.
    const headers = ['content-type: application/json', `x-admin-secret: ${ADMIN_SECRET}`, 'connection: close']
    const ask = async (spelling: string) => {
      const bytes = Buffer.from(requestBytes(method, spelling, headers, method === 'POST' ? BODY : ''))
      return statuses(await rawAnswer(t, gateway, bot, bytes))
    }
    const before = await gateway.rows()
    const spellings = new Set(variants(path).filter((spelling) => spelling !== path))
    t.ok(spellings.size >= 60, `${spellings.size} spellings`)
    const answers = await Promise.all(
      [...spellings].map(async (spelling) => [spelling, await ask(spelling)] as const),
    )
    for (const [spelling, found] of answers) {
      t.ok(found.length === 1 && [400, 404, 405].includes(found[0] ?? 0), `${spelling} ${found.join()}`)
    }
    t.equal(gateway.upstream.seen.length, 0, 'nothing was dispatched')
    t.same(await gateway.rows(), before, 'nothing was judged or changed')
    const [status = 0] = await ask(path)
    t.ok(status === 200 || status === 422, `the path itself is served: ${status}`)
  })
}

t.test('T17 the id in a path is decoded once, after it was cut out', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', [])
  const served = ['acme::bot', 'acme%3A%3Abot', 'acme%3a%3abot', '%61cme::bot']
  const refused = [
    'acme%253A%253Abot',
    'acme::bot%00',
    'acme::bot%2f',
    'acme::bot%',
    '..%2fagents%2facme::bot',
    'acme::bot/',
    '',
  ]
  for (const [ids, expected] of [
    [served, 200],
    [refused, 404],
  ] as const) {
    for (const id of ids) {
      const { status } = await gateway.admin('GET', `/v1/admin/agents/${id}`)
      t.equal(status, id === '' ? 404 : expected, id)
    }
  }
})
