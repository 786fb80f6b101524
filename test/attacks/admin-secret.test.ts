import t, { type Test } from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { readSetting } from '../../db/settings.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { adminSecret } from '../../plugins/secrets/admin-secret.ts'
import { hashSecret } from '../../plugins/secrets/hash.ts'
import { contentsOf } from '../support/db/raw.ts'
import { ADMIN_SECRET, type Answered, CHAT, type TestGateway, testGateway } from '../support/gateway.ts'
import { arrival } from '../support/plugins/arrival.ts'
import { secretOf } from '../support/plugins/operators.ts'
import { type RawOptions, rawConnect, requestBytes, statuses } from '../support/raw.ts'

const NEW_SECRET = 'a-new-secret-of-the-operator'
const LIST = '/v1/admin/agents'

const GUESSES: readonly (readonly [string, Record<string, string>])[] = [
  ['none', {}],
  ['an empty one', { 'x-admin-secret': '' }],
  ['a wrong one', { 'x-admin-secret': 'wrong' }],
  ['a prefix', { 'x-admin-secret': ADMIN_SECRET.slice(0, -1) }],
  ['one character more', { 'x-admin-secret': `${ADMIN_SECRET}x` }],
  ['another case', { 'x-admin-secret': ADMIN_SECRET.toUpperCase() }],
  ['72 bytes', { 'x-admin-secret': 'x'.repeat(72) }],
  ['73 bytes, of which bcrypt would read the right 72', { 'x-admin-secret': `${'s'.repeat(72)}x` }],
  ['8 KB', { 'x-admin-secret': 'x'.repeat(8_000) }],
]

const guess = (gateway: TestGateway, headers: Record<string, string>): Promise<Answered> =>
  gateway.call(null, 'GET', LIST, { headers })

const rotate = (gateway: TestGateway, secret: string): Promise<Answered> =>
  gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret: secret })

const faceOf = ({ status, headers, json }: Answered): string => {
  const id: string = json.request_id
  const { date: _, 'x-request-id': own, 'request-id': same, ...rest } = headers
  return JSON.stringify({ status, rest, json, ids: [own === id, same === id] }).replaceAll(id, 'ID')
}

t.test('threat 7 T15 every wrong secret is refused with the same answer', async (t) => {
  for (const [kind, secret] of [
    ['from the environment', null],
    ['of 72 bytes, stored', 's'.repeat(72)],
  ] as const) {
    const gateway = await testGateway(t)
    if (secret !== null) t.equal((await rotate(gateway, secret)).status, 204)
    const faces = new Set<string>()
    for (const [name, headers] of GUESSES) {
      const answer = await guess(gateway, headers)
      t.match(
        answer,
        { status: 403, json: { reason: 'admin_secret_invalid' } },
        `${name}, the secret is ${kind}`,
      )
      faces.add(faceOf(answer))
    }
    t.equal(faces.size, 1, 'not a byte of difference')
    const right = await guess(gateway, { 'x-admin-secret': secret ?? ADMIN_SECRET })
    t.equal(right.status, 200)
  }
})

t.test('T8 two secrets are refused before either is looked at', async (t) => {
  const gateway = await testGateway(t)
  for (const second of [ADMIN_SECRET, 'wrong']) {
    const connection = await rawConnect(t, gateway, null)
    connection.send(
      requestBytes('GET', LIST, [`x-admin-secret: ${ADMIN_SECRET}`, `X-Admin-Secret: ${second}`]),
    )
    t.same(statuses(await connection.closed), [400])
  }
  const joined = await guess(gateway, { 'x-admin-secret': `${ADMIN_SECRET}, ${ADMIN_SECRET}` })
  t.equal(joined.status, 403)
})

t.test('threat 7 without any secret set the admin API refuses everyone', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ADMIN_SECRET: '' } })
  for (const headers of [
    {},
    { 'x-admin-secret': '' },
    { 'x-admin-secret': 'undefined' },
    { 'x-admin-secret': 'null' },
  ]) {
    t.match(await guess(gateway, headers), { status: 403, json: { reason: 'admin_secret_invalid' } })
  }
})

const linux = process.platform === 'linux' ? false : 'needs more than one loopback address'

t.test('threat 7 ten failures in a minute silence an address, and no other', { skip: linux }, async (t) => {
  let at = 0
  const gateway = await testGateway(t, { monotonic: () => at })
  const ask = async (address: string, secret: string): Promise<string> => {
    const connection = await rawConnect(t, gateway, null, from(address))
    connection.send(requestBytes('GET', LIST, [`x-admin-secret: ${secret}`, 'connection: close']))
    return connection.closed
  }
  for (let i = 0; i < 10; i += 1) t.same(statuses(await ask('127.0.0.2', 'wrong')), [403])
  const throttled = await ask('127.0.0.2', 'wrong')
  t.match(throttled, /^HTTP\/1\.1 429 /)
  t.match(throttled, /retry-after: 60\r\n/i)
  t.same(statuses(await ask('127.0.0.2', ADMIN_SECRET)), [429], 'also with the right secret')
  t.same(statuses(await ask('127.0.0.3', ADMIN_SECRET)), [200], 'the operator elsewhere is not bothered')
  at += 60_000
  t.same(statuses(await ask('127.0.0.2', ADMIN_SECRET)), [200], 'a minute later')
})

const from = (localAddress: string): RawOptions => ({
  host: '127.0.0.1',
  servername: 'localhost',
  localAddress,
})

t.test('threat 7 a rotation ends the old secret and the environment variable at once', async (t) => {
  const gateway = await testGateway(t)
  t.equal((await guess(gateway, { 'x-admin-secret': ADMIN_SECRET })).status, 200)
  t.equal((await rotate(gateway, NEW_SECRET)).status, 204)
  t.equal(
    (await guess(gateway, { 'x-admin-secret': ADMIN_SECRET })).status,
    403,
    'the variable has no say any more',
  )
  const next = { 'x-admin-secret': NEW_SECRET }
  t.equal((await guess(gateway, next)).status, 200)
  t.equal((await guess(gateway, next)).status, 200, 'now remembered')
  const body = { new_secret: `${NEW_SECRET}-2` }
  t.equal((await gateway.call(null, 'POST', '/v1/admin/secret/rotate', { headers: next, body })).status, 204)
  t.equal((await guess(gateway, next)).status, 403, 'what was remembered is forgotten')
  const stored = await storedHash(gateway)
  t.match(stored, /^\$2[aby]\$12\$/)
  t.equal((await guess(gateway, { 'x-admin-secret': stored })).status, 403, 'the hash is not the secret')
})

async function storedHash({ settings }: TestGateway): Promise<string> {
  const database = await openDatabase(settings.databaseUrl)
  const stored = await readSetting(database, 'admin_secret_hash')
  await database.close()
  return stored ?? ''
}

t.test('T15 of many guesses at once few are verified, the others are turned away at once', async (t) => {
  const stored = await hashSecret(NEW_SECRET)
  const plugin = adminSecret(secretOf(() => stored))
  const ended: string[] = []
  await Promise.all(
    Array.from({ length: 50 }, async (_, i) => {
      const facts = arrival({ headers: { 'x-admin-secret': `guess-${i}` }, remoteAddress: `10.0.0.${i}` })
      try {
        await plugin.admit(facts)
      } catch (error) {
        ended.push(error instanceof Refusal ? error.reason : String(error))
      }
    }),
  )
  t.same(ended, [...Array(45).fill('overloaded'), ...Array(5).fill('admin_secret_invalid')])
})

t.test('T15 a flood of guesses does not keep a call from being answered', { skip: linux }, async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await rotate(gateway, NEW_SECRET)).status, 204)
  const connections = await Promise.all(
    Array.from({ length: 30 }, (_, i) => rawConnect(t, gateway, null, from(`127.0.1.${i + 1}`))),
  )
  const order: string[] = []
  const flood = connections.map(async ({ send, closed }, i) => {
    send(requestBytes('GET', LIST, [`x-admin-secret: guess-${i}`, 'connection: close']))
    const [status = 0] = statuses(await closed)
    order.push(String(status))
  })
  const { status } = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  order.push('call')
  t.equal(status, 200)
  await Promise.all(flood)
  t.not(order.at(-1), 'call', 'the call did not wait for the guesses')
  t.same(
    order.filter((seen) => !['call', '403', '503'].includes(seen)),
    [],
    'each guess is refused, or turned away',
  )
  t.ok(order.includes('503'))
})

t.test(
  'threats 7, 30 no secret that was ever sent stands in a log line, a row or the database',
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_LOG_LEVEL: 'trace' } })
    const guessed = 'canary-of-a-guess-0123456789'
    const chosen = 'canary-of-a-choice-0123456789'
    await guess(gateway, { 'x-admin-secret': guessed })
    await gateway.call(null, 'GET', `${LIST}?secret=${guessed}`, { headers: { 'x-admin-secret': guessed } })
    t.equal((await rotate(gateway, chosen)).status, 204)
    t.equal(
      (await gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret: `${chosen}${'x'.repeat(80)}` }))
        .status,
      403,
    )
    const shown = await gateway.call(null, 'POST', '/v1/admin/secret/rotate', {
      headers: { 'x-admin-secret': chosen },
      body: { new_secret: 'canary', [guessed]: 1 },
    })
    t.equal(shown.status, 422)
    const rows = await gateway.rows()
    t.ok(rows.some(({ action }) => action === 'admin.secret_rotated'))
    await gateway.close(0)
    await absent(t, gateway, [guessed, chosen, ADMIN_SECRET])
  },
)

async function absent(t: Test, { log, settings }: TestGateway, secrets: readonly string[]): Promise<void> {
  const stored = await contentsOf(settings.databaseUrl)
  t.ok(stored.includes('admin.secret_rotated'), 'the database was read')
  for (const secret of secrets) {
    t.notOk(JSON.stringify(log).includes(secret), 'in no log line')
    t.notOk(stored.includes(secret), 'in no byte of the database')
  }
}
