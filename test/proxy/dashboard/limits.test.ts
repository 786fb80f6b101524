import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { parseUsd, usdShort } from '../../../plugins/prices/usd.ts'
import { press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { CHAT, type Identity, sharedGateway, type TestGateway } from '../../support/gateway.ts'
import { type Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'

t.setTimeout(120_000)

const PAGE = '/proxy/limits'
/** The values of the selects of the form if nobody touches them. */
const CHOSEN = { measure: 'cost', per: 'month', on: 'refuse' }

let signedIn: Promise<Jar> | undefined
/** The operator of all tests of this file: so many sign-ins from one address would be refused. */
const signedInOnce = (gateway: TestGateway): Promise<Jar> => (signedIn ??= signedInBySecret(gateway))

const textOf = async (jar: Jar, path: string): Promise<string> => (await jar.ask('GET', path)).text

/** Presses a button, and again on the page that says what it would have done. */
async function confirmed(jar: Jar, page: string, label: string, typed: Readonly<Record<string, string>>) {
  const shown = await press(jar, page, label, typed)
  return shown.status === 200 ? press(jar, shown.text, new RegExp(`^${label}`)) : shown
}

const makeLimit = async (jar: Jar, typed: Readonly<Record<string, string>>) =>
  confirmed(jar, await textOf(jar, PAGE), 'Make the limit', { ...CHOSEN, ...typed })

interface StoredLimit {
  readonly limit_id: string
  readonly name: string
  readonly amount: number
}

async function stored(gateway: TestGateway, name: string): Promise<StoredLimit | undefined> {
  const { limits } = (await gateway.admin('GET', '/v1/admin/limits')).json
  return limits.find((one: StoredLimit) => one.name === name)
}

async function made(t: Test, gateway: TestGateway, jar: Jar, typed: Readonly<Record<string, string>>) {
  const sent = await makeLimit(jar, typed)
  t.equal(sent.status, 303, sent.text.slice(0, 2_000))
  const limit = await stored(gateway, typed.name ?? '')
  return { limit, path: `${PAGE}/${limit?.limit_id ?? ''}` }
}

const chat = (gateway: TestGateway, who: Identity) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })

/** The words of a page's row, or of all of it, without tags. */
const wordsOf = (html: string): string => html.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ')

t.test('an amount is typed in dollars and stored in micro-USD, to the last digit', (t) => {
  for (const [typed, stored, shown] of [
    ['25', 25_000_000, '25.00'],
    ['25.00', 25_000_000, '25.00'],
    ['0.1', 100_000, '0.10'],
    ['0.29', 290_000, '0.29'],
    ['1.005', 1_005_000, '1.005'],
    ['0.000001', 1, '0.000001'],
    ['999999999.999999', 999_999_999_999_999, '999999999.999999'],
  ] as const) {
    t.equal(parseUsd(typed), stored, typed)
    t.equal(usdShort(stored), shown)
  }
  for (const typed of ['', '.', '-1', '+1', '1e3', '1,5', '25 USD', '1.0000001', '0x10', 'NaN', '１'])
    t.equal(parseUsd(typed), null, typed)
  t.end()
})

t.test('team red gets 25 USD a month by one form, and the list says so in words', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const empty = await textOf(jar, PAGE)
  t.match(empty, 'A limit bounds what calls use')
  t.match(empty, '<a class="button" href="#make">Make a limit</a>')
  const sent = await makeLimit(jar, { name: 'red-month', amount: '25', holding: 'team.red' })
  t.equal(sent.status, 303, sent.text)
  t.equal(sent.headers.location, `${PAGE}?notice=limit_made`)
  const limit = await stored(gateway, 'red-month')
  t.match(limit, {
    ...{ for: { holding: 'team.red' }, measure: 'cost', amount: 25_000_000, per: 'month' },
    ...{ each: false, strict: false, on: 'refuse', show: true },
  })
  const list = await textOf(jar, `${PAGE}?notice=limit_made`)
  t.match(list, 'The limit is made')
  t.match(wordsOf(list), 'calls of principals that hold team.red')
  t.match(list, '0 of 25.00 USD this month')
  t.match(list, /<meter [^>]*value="0"/)
  t.match(list, /<time datetime="\d{4}-\d\d-01T00:00:00\.000Z"/, 'when it begins again')
})

t.test('the form says first which calls of the last 30 days it would have refused, and whose', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const bot = await gateway.enroll('shown', ['llm.chat', 'team.shown'])
  for (let n = 0; n < 3; n += 1) t.equal((await chat(gateway, bot)).status, 200)
  const typed = {
    ...CHOSEN,
    name: 'shown',
    holding: 'team.shown',
    measure: 'calls',
    amount: '1',
    per: 'ever',
  }
  const shown = await press(jar, await textOf(jar, PAGE), 'Make the limit', typed)
  t.equal(shown.status, 200)
  t.equal(await stored(gateway, 'shown'), undefined, 'nothing is made yet')
  const words = wordsOf(shown.text)
  t.match(
    words,
    /shown: in the last 30 days this would have refused 2 calls of 1 principal, first on \d+ \w+/,
  )
  t.match(words, /acme::shown\S* 3 2 first [^<]* which 1 call/)
  const label = 'Make the limit: 2 calls of the last 30 days would be refused'
  t.equal((await press(jar, shown.text, label)).headers.location, `${PAGE}?notice=limit_made`)
  t.equal((await chat(gateway, bot)).status, 200)
  t.equal((await chat(gateway, bot)).status, 429, 'as it was shown')
  const { limit_id: id } = (await stored(gateway, 'shown')) ?? {}
  t.equal((await gateway.admin('DELETE', `/v1/admin/limits/${id}`)).status, 204)

  const alerts = { ...typed, name: 'shown-alert', measure: 'cost', amount: '25', per: 'month', on: 'alert' }
  const alerting = await press(jar, await textOf(jar, PAGE), 'Make the limit', alerts)
  t.match(wordsOf(alerting.text), 'it only alerts')
  t.equal((await press(jar, alerting.text, /^Make the limit/)).status, 303)
})

t.test('the page of a principal has the limits that its calls count on, with its own use', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const bot = await gateway.enroll('bounded', ['llm.chat', 'team.bounded'])
  const other = await gateway.enroll('unbounded', ['llm.chat'])
  const calls = { measure: 'calls', per: 'day', amount: 10 }
  for (const [name, more] of [
    ['bounded-each', { for: { holding: 'team.bounded' }, each: true }],
    ['bounded-all', { for: { holding: 'team.bounded' }, amount: 4 }],
    ['bounded-others', { for: { types: ['workload'] } }],
  ] as const)
    t.equal((await gateway.admin('POST', '/v1/admin/limits', { name, ...calls, ...more })).status, 201)
  for (let n = 0; n < 3; n += 1) t.equal((await chat(gateway, bot)).status, 200)
  const path = `${PAGE}?principal=${encodeURIComponent(bot.id)}`
  const page = await textOf(jar, `/proxy/agents/${encodeURIComponent(bot.id)}`)
  t.match(page, `id="limits" data-load="${path}"`, 'the page of the principal loads it')
  const words = wordsOf(await textOf(jar, path))
  t.match(
    words,
    /bounded-all .* 3 of 4 calls today .* bounded-each .* 3 of 10 calls today/,
    'the nearest first',
  )
  t.notMatch(words, 'bounded-others')
  t.match(words, /bounded-each .* begins again/)
  const nothing = wordsOf(await textOf(jar, `${PAGE}?principal=${encodeURIComponent(other.id)}`))
  t.match(nothing, 'No limit applies to its calls')
  t.equal((await jar.ask('GET', `${PAGE}?principal=acme::nobody`)).status, 404)
})

t.test(
  'a provider that uses more than it was asked for stands under Attention, if a strict limit was passed',
  async (t) => {
    const gateway = await sharedGateway(t)
    const jar = await signedInOnce(gateway)
    const bot = await gateway.enroll('passing', ['llm.chat', 'team.passing'])
    const terms = {
      for: { holding: 'team.passing' },
      measure: 'tokens',
      per: 'day',
      strict: true,
      amount: 500,
    }
    t.equal((await gateway.admin('POST', '/v1/admin/limits', { name: 'passing', ...terms })).status, 201)
    gateway.upstream.answer = (response) => {
      response.setHeader('content-type', 'application/json')
      const usage = { prompt_tokens: 600, completion_tokens: 1 }
      response.end(JSON.stringify({ model: 'gpt-test', choices: [], usage }))
    }
    const body = { ...CHAT, max_tokens: 10 }
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body })).status, 200)
    const said =
      /passing.*: 601 of 500 tokens today.* strict, and passed It was lowered, or a provider has used more/
    let words = wordsOf(await textOf(jar, '/proxy'))
    while (!said.test(words)) words = wordsOf(await textOf(jar, '/proxy'))
    t.match(words, said)
    const { limit_id: id } = (await stored(gateway, 'passing')) ?? {}
    t.equal((await gateway.admin('DELETE', `/v1/admin/limits/${id}`)).status, 204)
  },
)

t.test('what is wrong stands on the form with what was typed, and nothing is stored', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const wrong: readonly (readonly [Readonly<Record<string, string>>, RegExp])[] = [
    [{ name: 'wrong', amount: '25,00' }, /Amount<\/code> must be an amount in USD/],
    [{ name: 'wrong', amount: '1.5', measure: 'calls' }, /Amount<\/code> must be a whole number/],
    [{ name: 'Wrong One', amount: '25' }, /Name<\/code> must be 1 to 63/],
    [{ name: 'wrong', amount: '1', holding: 'Team Red' }, /Of principals that hold<\/code> must be a cap/],
    [{ name: 'wrong', amount: '1', models: 'a b' }, /must be 1 to 256 visible characters/],
    [{ name: 'wrong', amount: '1', models: 'a*', tools: 'b*' }, /models and tools never fit the same call/],
    [{ name: 'wrong', amount: '1', per: 'second' }, /Per<\/code> must be an hour or longer for cost/],
    [
      { name: 'wrong', amount: '5', measure: 'calls', strict: 'true' },
      /Strict<\/code> is of cost and tokens/,
    ],
  ]
  for (const [typed, said] of wrong) {
    const sent = await makeLimit(jar, typed)
    t.equal(sent.status, 422, JSON.stringify(typed))
    t.match(sent.text, said)
    for (const [name, value] of Object.entries(typed))
      if (name === 'name' || name === 'amount' || name === 'models')
        t.match(sent.text, new RegExp(`name="${name}"[^>]* value="${value.replaceAll('*', '\\*')}"`), name)
  }
  const again = await makeLimit(jar, {
    name: 'wrong',
    amount: 'x',
    measure: 'tokens',
    per: 'day',
    each: 'true',
  })
  t.match(again.text, '<option value="tokens" selected>')
  t.match(again.text, '<option value="day" selected>')
  t.match(again.text, /name="each" value="true" checked/)
  t.match(again.text, /name="amount"[^>]* aria-invalid="true"/)
  t.equal(await stored(gateway, 'wrong'), undefined)
})

t.test('bars say how much is used, the nearest first, and of each principal the nearest three', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const each = { measure: 'calls', per: 'day', each: 'true' }
  await made(t, gateway, jar, { name: 'far', ...each, amount: '100', holding: 'team.bars' })
  const near = await made(t, gateway, jar, {
    name: 'near',
    ...each,
    each: '',
    amount: '5',
    holding: 'team.bars',
  })
  const many = await made(t, gateway, jar, {
    ...{ name: 'open', measure: 'concurrent', amount: '9', principals: 'acme::nobody-*, acme::x' },
    models: 'openai/*',
  })
  t.equal(Object.hasOwn(many.limit ?? {}, 'per'), false, 'calls at once have no time')
  const bots = []
  for (const name of ['bars-a', 'bars-b', 'bars-c', 'bars-d'])
    bots.push(await gateway.enroll(name, ['llm.chat', 'team.bars']))
  const [a, , , d] = bots
  for (const who of [...bots.slice(0, 3), a ?? null, d ?? null])
    if (who) t.equal((await chat(gateway, who)).status, 200)
  const list = await textOf(jar, PAGE)
  t.match(list, '5 of 5 calls today')
  t.match(list, /<meter [^>]*value="100"/)
  t.ok(list.indexOf('>near<') < list.indexOf('>far<'), 'the nearest first')
  t.match(list, '2 of 100 calls today')
  t.match(list, `href="/proxy/agents/${encodeURIComponent(a?.id ?? '')}"`)
  const [, far = ''] = />far<([\s\S]*?)<\/tr>/.exec(list) ?? []
  t.equal(far.match(/<meter/g)?.length, 3, 'three of four principals')
  t.match(wordsOf(far), 'calls of principals that hold team.bars , each principal by itself')
  t.match(wordsOf(list), 'calls of acme::nobody-* , acme::x to openai/*')
  t.match(list, '0 of 9 calls at once')
  const attention = await textOf(jar, '/proxy')
  t.match(attention, '1 limit is 80 % used or more')
  t.match(attention, /\/proxy\/limits\/lim_[0-9a-f]+">near<\/a>: 5 of 5 calls today/)
  const refused = await chat(gateway, a ?? bots[1] ?? { id: '', cert: '', key: '' })
  t.equal(refused.status, 429)
  t.match(await textOf(jar, `${PAGE}?q=nea`), />near<\/a>/)
  t.notMatch(await textOf(jar, `${PAGE}?q=nea`), />far<\/a>/)
  const removed = await press(jar, await textOf(jar, near.path), 'Remove it')
  t.match(removed.text, 'Once it is removed, it refuses none of them')
  t.ok(await stored(gateway, 'near'), 'not before it was confirmed')
  const gone = await press(jar, removed.text, 'Remove it')
  t.equal(gone.headers.location, `${PAGE}?notice=limit_removed`)
  t.equal(await stored(gateway, 'near'), undefined)
  t.equal((await jar.ask('GET', near.path)).status, 404)
  t.notMatch(await textOf(jar, '/proxy'), '80 % used')
})

t.test('an amount is changed, and overridden until an instant with a reason', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const { path } = await made(t, gateway, jar, { name: 'changed', amount: '10', holding: 'team.changed' })
  const changed = await confirmed(jar, await textOf(jar, path), 'Change the amount', { amount: '12.5' })
  t.equal(changed.headers.location, `${path}?notice=limit_changed`)
  t.equal((await stored(gateway, 'changed'))?.amount, 12_500_000)
  t.match(
    await textOf(jar, path),
    'name="amount" required maxlength="17" inputmode="decimal" autocomplete="off" value="12.50"',
  )

  const override = (typed: Readonly<Record<string, string>>) =>
    textOf(jar, path).then((page) => confirmed(jar, page, 'Override the amount', typed))
  const past = await override({ amount: '50', until: '2020-01-01', reason: 'the release' })
  t.equal(past.status, 422)
  t.match(past.text, 'must be in the future')
  t.match(past.text, /name="reason"[^>]* value="the release"/)
  t.match((await override({ amount: '50', until: 'soon', reason: 'x' })).text, 'is not a date and time')
  t.match((await override({ amount: '50', until: '2099-12-24 18:00', reason: ' ' })).text, 'must say why')
  const hidden = '<b>\u202ethe \u200brelease'
  t.equal((await override({ amount: '50', until: '2099-12-24 18:00', reason: hidden })).status, 303)
  t.match(await stored(gateway, 'changed'), {
    amount: 12_500_000,
    override: { amount: 50_000_000, until: '2099-12-24T18:00:00.000Z', reason: hidden },
  })
  for (const place of [path, PAGE]) {
    const text = await textOf(jar, place)
    t.match(text, '50.00 USD until 2099-12-24 18:00 UTC')
    t.match(text, '&lt;b&gt;\\u{202e}the \\u{200b}release')
    t.notMatch(text, /\u202e|\u200b|<b>\\u/)
  }
  t.match(await textOf(jar, PAGE), '0 of 50.00 USD this month')
  t.equal((await confirmed(jar, await textOf(jar, path), 'End the override', {})).status, 303)
  t.match(await stored(gateway, 'changed'), { amount: 12_500_000, override: null })
  t.notMatch(await textOf(jar, path), 'End the override')
})

t.test('patterns of an operator are no HTML, wherever they are shown', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const models = '"><script>alert(1)</script>*'
  const { path } = await made(t, gateway, jar, { name: 'hostile', amount: '1', models })
  for (const place of [PAGE, path]) {
    const text = await textOf(jar, place)
    t.match(text, '&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;*')
    t.notMatch(text, '<script>alert')
  }
  const removing = await press(jar, await textOf(jar, path), 'Remove it')
  t.notMatch(removing.text, '<script>alert')
  t.equal((await press(jar, removing.text, 'Remove it')).status, 303)
})

t.test('a change that another one has overtaken is said, and nothing of either is lost', async (t) => {
  const gateway = await sharedGateway(t)
  const jar = await signedInOnce(gateway)
  const { path, limit } = await made(t, gateway, jar, { name: 'raced', amount: '10', holding: 'team.raced' })
  const before = await textOf(jar, path)
  const api = `/v1/admin/limits/${limit?.limit_id}`
  t.equal((await gateway.admin('PATCH', api, { amount: 20_000_000 })).status, 200)
  for (const [label, typed] of [
    ['Change the amount', { amount: '30' }],
    ['Override the amount', { amount: '30', until: '2099-12-24', reason: 'the release' }],
  ] as const) {
    const overtaken = await confirmed(jar, before, label, typed)
    t.equal(overtaken.status, 412)
    t.match(overtaken.text, 'The object has changed since it was read')
    t.match(overtaken.text, '20.00 USD a month', 'what is there now')
    t.match(overtaken.text, 'value="30"', 'what was typed')
    t.match(await stored(gateway, 'raced'), { amount: 20_000_000, override: null })
  }
  const removing = await press(jar, before, 'Remove it')
  t.equal((await press(jar, removing.text, 'Remove it')).status, 412)
  t.ok(await stored(gateway, 'raced'))
  const again = await confirmed(jar, before, 'Change the amount', { amount: '30' })
  t.equal((await confirmed(jar, again.text, 'Change the amount', { amount: '30' })).status, 303)
  t.equal((await stored(gateway, 'raced'))?.amount, 30_000_000, 'the second press has seen it')
})

t.test('who lacks admin.grant sees limits and no form, and is refused; so is another site', async (t) => {
  const gateway = await sharedGateway(t)
  const owner = await signedInOnce(gateway)
  const { path } = await made(t, gateway, owner, { name: 'kept', amount: '10', holding: 'team.kept' })
  const forms = [
    [PAGE, { ...CHOSEN, name: 'forced', amount: '1' }],
    [`${path}/amount`, { amount: '99' }],
    [`${path}/override`, { amount: '99', until: '2099-12-24', reason: 'x' }],
    [`${path}/remove`, { confirm: 'warned' }],
  ] as const
  const csrfIn = (page: string): string => /name="csrf" value="([^"]+)"/.exec(page)?.[1] ?? ''
  const reader = await signedInAs(gateway, await operatorNamed(gateway, 'limit-reader', ['admin.read']))
  const list = await textOf(reader, PAGE)
  t.match(list, '>kept</a>')
  t.match(list, 'Making a limit needs <code>admin.grant</code>')
  t.notMatch(list, 'Make the limit')
  const one = await textOf(reader, path)
  t.match(one, 'Changing it needs <code>admin.grant</code>')
  t.notMatch(one, 'Remove it')
  const own = csrfIn(await textOf(owner, path))
  for (const [place, fields] of forms) {
    t.equal((await reader.send(place, { ...fields, csrf: csrfIn(list) })).status, 403, place)
    for (const [token, headers, why] of [
      ['', {}, 'no token'],
      [csrfIn(list), {}, "another session's token"],
      [own, { origin: 'https://evil.example' }, 'another site'],
      [own, { 'sec-fetch-site': 'cross-site' }, 'another site, as the browser says'],
    ] as const)
      t.equal((await owner.send(place, { ...fields, csrf: token }, headers)).status, 403, `${place}: ${why}`)
  }
  const blind = await signedInAs(gateway, await operatorNamed(gateway, 'limit-blind', ['admin.audit']))
  t.equal((await blind.ask('GET', PAGE)).status, 403)
  t.match(await stored(gateway, 'kept'), { amount: 10_000_000, override: null })
  t.equal(await stored(gateway, 'forced'), undefined)
})

t.test(
  'where two people are asked for, a change waits for the second, and making one does not',
  async (t) => {
    const gateway = await sharedGateway(t)
    const owners = ['alice', 'bob'].map((name) =>
      operatorNamed(gateway, `limits-${name}`, ['admin.read', 'admin.grant']),
    )
    const [alice, bob] = await Promise.all(owners.map(async (who) => signedInAs(gateway, await who)))
    if (!alice || !bob) return t.fail('two have signed in')
    const file = join(gateway.pluginsDir, '70-operators.yaml')
    await writeFile(file, 'plugin: operators\ntwo_person: [grant]\n')
    t.equal(await gateway.reload(), true)
    const { path } = await made(t, gateway, alice, { name: 'shared', amount: '10', holding: 'team.shared' })
    const confirm = async () => (await press(bob, await textOf(bob, '/proxy'), 'Confirm')).headers.location
    const asked = await confirmed(alice, await textOf(alice, path), 'Change the amount', { amount: '20' })
    t.equal(asked.headers.location, `${path}?notice=proposed`)
    t.match(await stored(gateway, 'shared'), { amount: 10_000_000 })
    t.equal(await confirm(), '/proxy?notice=confirmed')
    t.match(await stored(gateway, 'shared'), { amount: 20_000_000 })
    const removing = await press(alice, await textOf(alice, path), 'Remove it')
    t.equal((await press(alice, removing.text, 'Remove it')).headers.location, `${PAGE}?notice=proposed`)
    t.ok(await stored(gateway, 'shared'))
    await confirm()
    t.equal(await stored(gateway, 'shared'), undefined)
    await rm(file)
    t.equal(await gateway.reload(), true)
  },
)

t.test(
  'the page has a hundred limits, reads the meters of as many for each, and finds any by name',
  async (t) => {
    const gateway = await sharedGateway(t)
    const jar = await signedInOnce(gateway)
    const body = { for: { holding: 'team.nobody' }, measure: 'calls', per: 'day', amount: 1, each: true }
    for (let n = 0; n <= 100; n += 1) {
      const { status } = await gateway.admin('POST', '/v1/admin/limits', { name: `many-${n}.`, ...body })
      t.equal(status, 201)
    }
    const list = await textOf(jar, PAGE)
    t.equal(list.match(/<a class="row"/g)?.length, 100)
    t.match(list, /<p>\d+ limits? (?:is|are) further from the amount than these/)
    const last = await textOf(jar, `${PAGE}?q=many-100.`)
    t.equal(last.match(/<a class="row"/g)?.length, 1)
    t.match(last, 'open it to see', 'the meters of the first hundred are read')
    t.match(await textOf(jar, `${PAGE}?q=many-5.`), 'nothing yet; 1 call for each principal')
    t.match(await textOf(jar, `${PAGE}?q=%3Cb%3Enobody`), 'No limit has that name')
  },
)
