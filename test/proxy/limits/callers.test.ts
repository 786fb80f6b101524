import t from 'tap'
import { CHAT, type Identity, sharedGateway, type TestGateway } from '../../support/gateway.ts'

const made = async (gateway: TestGateway, body: object): Promise<void> => {
  const { status } = await gateway.admin('POST', '/v1/admin/limits', body)
  if (status !== 201) throw new Error(`the limit was answered ${status}`)
}

const chat = (gateway: TestGateway, who: Identity, model = 'gpt-test') =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: { ...CHAT, model } })

const own = async (gateway: TestGateway, who: Identity) => {
  const { status, json } = await gateway.call(who, 'GET', '/v1/limits')
  return status === 200 ? json.limits : status
}

t.test('a caller reads its own limits that show themselves, what is used, and what is left', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'team.own'])
  const mate = await gateway.enroll('mate', ['llm.chat', 'team.own'])
  const stranger = await gateway.enroll('stranger', ['llm.chat'])
  const holding = 'team.own'
  t.same(await own(gateway, bot), [], 'there are none')
  const calls = { measure: 'calls', per: 'month', amount: 3 }
  await made(gateway, { name: 'together', for: { holding }, ...calls })
  await made(gateway, { name: 'alone', for: { holding }, each: true, ...calls })
  await made(gateway, { name: 'others', for: { holding, models: ['anthropic/*'] }, ...calls, amount: 5 })
  await made(gateway, { name: 'hidden', for: { holding }, ...calls, show: false })
  await made(gateway, { name: 'elsewhere', for: { holding: 'team.else' }, ...calls })
  t.equal((await chat(gateway, bot)).status, 200)
  t.equal((await chat(gateway, mate)).status, 200)
  const month = { measure: 'calls', per: 'month', on: 'refuse', resets_at: /-01T00:00:00\.000Z$/ }
  const read = await own(gateway, bot)
  t.match(read, [
    { name: 'together', ...month, amount: 3, each: false, used: 2, left: 1 },
    { name: 'alone', ...month, amount: 3, each: true, used: 1, left: 2 },
    { name: 'others', ...month, models: ['anthropic/*'], amount: 5, used: 0, left: 5 },
  ])
  t.equal(read.length, 3, 'neither hidden ones nor those of others')
  t.notMatch(JSON.stringify(read), /lim_|team\.own|mate/, 'nor whom they are for')
  t.same(await own(gateway, stranger), [])
  t.equal((await gateway.call(null, 'GET', '/v1/limits')).status, 401, 'nobody is a caller')
})

t.test('a steady rate is read as it is now, with its amount and its burst', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('steady', ['llm.chat', 'team.steady'])
  const rate = { measure: 'calls', per: 'minute', amount: 1, burst: 4 }
  await made(gateway, { name: 'rate', for: { holding: 'team.steady' }, ...rate })
  t.equal((await chat(gateway, bot)).status, 200)
  t.match(await own(gateway, bot), [{ ...rate, used: 1, left: 3, resets_at: null }])
})

t.test('answers state the limits of calls that applied, refusals too, and others none', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('stated', ['llm.chat', 'team.stated'])
  const other = await gateway.enroll('unstated', ['llm.chat'])
  const holding = 'team.stated'
  gateway.upstream.answer = (response) => {
    response.setHeader('ratelimit', '"theirs";r=1').setHeader('x-ratelimit-limit-requests', '9')
    response.setHeader('content-type', 'application/json').end('{"choices":[]}')
  }
  t.equal(
    (await chat(gateway, other)).headers.ratelimit,
    '"theirs";r=1',
    'without limits the provider speaks',
  )
  await made(gateway, { name: 'two', for: { holding }, measure: 'calls', per: 'ever', amount: 2 })
  await made(gateway, { name: 'at-once', for: { holding }, measure: 'concurrent', amount: 5 })
  await made(gateway, {
    name: 'silent',
    for: { holding },
    measure: 'calls',
    per: 'day',
    amount: 9,
    show: false,
  })
  const first = await chat(gateway, bot)
  t.equal(first.headers['ratelimit-policy'], '"two";q=2, "at-once";q=5;qu="concurrent-requests"')
  t.equal(first.headers.ratelimit, '"two";r=1, "at-once";r=4')
  t.equal(first.headers['x-ratelimit-limit-requests'], '9')
  t.match((await chat(gateway, bot)).headers.ratelimit, /^"two";r=0, /)
  const refused = await chat(gateway, bot)
  t.match([refused.status, refused.headers.ratelimit], [429, '"two";r=0'])
  t.equal((await chat(gateway, bot)).headers['ratelimit-policy'], '"two";q=2', 'known to be full')
  t.equal((await chat(gateway, other)).headers['ratelimit-policy'], undefined)
})

t.test('more limits than are read at once are all listed', async (t) => {
  const gateway = await sharedGateway(t)
  const bot = await gateway.enroll('many', ['llm.chat', 'team.many_own'])
  const body = (n: number) => ({
    ...{ name: `many-${n}`, for: { holding: 'team.many_own', models: [`model-${n}`] } },
    ...{ measure: 'calls', per: 'day', amount: n },
  })
  for (let n = 1; n <= 70; n += 1) await made(gateway, body(n))
  const read: readonly { readonly amount: number }[] = await own(gateway, bot)
  t.same(
    read.map(({ amount }) => amount),
    Array.from({ length: 70 }, (_, n) => n + 1),
  )
})
