import t from 'tap'
import { barWindow } from '../../../proxy/dashboard/activity/bars.ts'
import { following } from '../../support/dashboard.ts'
import { type Identity, type TestGateway, testGateway } from '../../support/gateway.ts'
import { Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'
import { eventually } from '../../support/settled.ts'

t.setTimeout(240_000)

const PATH = '/v1/chat/completions'
const BODY = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

/** A gateway at which agents have been allowed `allowed` times, and refused `denied` times. */
async function called(gateway: TestGateway, allowed: number, denied: number) {
  const [bot, none] = [await gateway.enroll('bot', ['llm.chat']), await gateway.enroll('none', [])]
  for (const [who, times] of [
    [bot, allowed],
    [none, denied],
  ] as const)
    for (let n = 0; n < times; n += 1) await gateway.call(who, 'POST', PATH, { body: BODY })
  return { bot, none }
}

const NOTHING_TYPED = { typed: { since: '', until: '' }, problems: { since: null, until: null } }

const number = (text: string | undefined): number => Number((text ?? '').replaceAll(',', ''))

/** What the page says was decided, and the bars of its chart. */
function readChart(text: string) {
  const totalOf = (verdict: string): number =>
    number(new RegExp(`>${verdict}</a> <b>([\\d,]+)</b>`).exec(text)?.[1])
  const bars = [
    ...text.matchAll(/<a href="([^"]+)" aria-label="[^"]*denied ([\d,]+), allowed ([\d,]+)"/g),
  ].map(([, href = '', denied, allowed]) => ({
    href: href.replaceAll('&amp;', '&'),
    denied: number(denied),
    allowed: number(allowed),
  }))
  return { denied: totalOf('denied'), allowed: totalOf('allowed'), bars }
}

const linesIn = (text: string): number => [...text.matchAll(/<a class="row"/g)].length

await t.test(
  'Activity says what was allowed and refused in the window, as the API and Attention do',
  async (t) => {
    const gateway = await testGateway(t)
    await called(gateway, 7, 3)
    const jar = await signedInBySecret(gateway)
    const { text } = await jar.ask('GET', '/proxy/activity')
    const { denied, allowed, bars } = readChart(text)
    const rows = await gateway.rows({ order: 'asc', limit: 1000 })
    const count = (status: string): number => rows.filter((row) => row.status === status).length
    t.same({ denied, allowed }, { denied: 3, allowed: 7 })
    t.same({ denied, allowed }, { denied: count('denied'), allowed: count('allowed') })
    const [, since = ''] = /data-since="([^"]+)"/.exec(text) ?? []
    for (const [status, total] of [
      ['denied', denied],
      ['allowed', allowed],
    ] as const) {
      const query = new URLSearchParams({ status, since, limit: '1000' })
      const { json } = await gateway.admin('GET', `/v1/admin/audit?${query.toString()}`)
      t.equal(json.rows.length, total, `${status} by the API`)
      t.equal(
        bars.reduce((sum, bar) => sum + bar[status], 0),
        total,
        `${status} in the bars`,
      )
    }
    const attention = (await jar.ask('GET', '/proxy')).text
    t.equal(linesIn(attention), 1, 'equal refusals are one line')
    t.match(attention, `<td class="number">${denied}</td>`, 'Attention counts as many')
  },
)

await t.test(
  'a bar is a link that narrows the page to its time, and each window has its own bars',
  async (t) => {
    let at = Date.UTC(2026, 10, 20, 12, 10)
    const gateway = await testGateway(t, { clock: () => at })
    const { bot, none } = await called(gateway, 2, 1)
    at += 2 * 3_600_000
    await gateway.call(bot, 'POST', PATH, { body: BODY })
    await gateway.call(none, 'POST', PATH, { body: BODY })
    const jar = await signedInBySecret(gateway)
    const day = readChart((await jar.ask('GET', '/proxy/activity?action=egress_llm_chat')).text)
    t.equal(day.bars.length, 49)
    const filled = day.bars.filter((bar) => bar.allowed + bar.denied > 0)
    t.same(
      filled.map(({ allowed, denied }) => [allowed, denied]),
      [
        [2, 1],
        [1, 1],
      ],
    )
    const [first] = filled
    const narrowed = (await jar.ask('GET', first?.href ?? '')).text
    t.match(first?.href, 'since=2026-11-20T12%3A00%3A00.000Z&until=2026-11-20T12%3A30%3A00.000Z')
    t.equal(linesIn(narrowed), 3, 'only its calls')
    const { bars, ...totals } = readChart(narrowed)
    t.same(totals, { denied: 1, allowed: 2 })
    t.equal(bars.length, 30, 'by the minute')
    for (const [window, length, total] of [
      ['1h', 61, 2],
      ['24h', 49, 5],
      ['7d', 43, 5],
      ['30d', 61, 5],
    ] as const) {
      const { text } = await jar.ask('GET', `/proxy/activity?action=egress_llm_chat&window=${window}`)
      const seen = readChart(text)
      t.equal(seen.bars.length, length, window)
      t.equal(seen.denied + seen.allowed, total, window)
      t.equal(linesIn(text), total, `${window}: the table has as many`)
    }
    const denied = readChart((await jar.ask('GET', '/proxy/activity?status=denied&window=24h')).text)
    t.same([denied.denied, denied.allowed], [2, 0], 'the verdict narrows the chart')
  },
)

await t.test(
  'numbers that are not of what the table shows say so, and lists are left out of both',
  async (t) => {
    const gateway = await testGateway(t)
    const { bot } = await called(gateway, 2, 1)
    await gateway.call(bot, 'POST', '/v1/mcp', {
      body: { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} },
    })
    const jar = await signedInBySecret(gateway)
    const page = async (query: string): Promise<string> =>
      (await jar.ask('GET', `/proxy/activity?${query}`)).text
    const [all, lists] = [await page(''), await page('noise=yes')]
    t.notMatch(all, 'not filtered by')
    for (const name of ['principal', 'tool', 'model', 'reason'])
      t.match(await page(`${name}=x`), `they are not filtered by ${name}.`)
    t.match(await page('status=success'), 'not filtered by verdict')
    t.notMatch(await page('since=2026-11-20&until=2026-11-21'), 'widened')
    t.match(await page('since=2026-11-20T00:00:01Z&until=2026-11-21'), 'widened to whole bars')
    const rows = await gateway.rows({ order: 'asc', limit: 1000 })
    const decided = rows.filter(({ status }) => status === 'allowed' || status === 'denied')
    const sum = ({ denied, allowed }: ReturnType<typeof readChart>): number => denied + allowed
    t.equal(sum(readChart(lists)), decided.length)
    t.equal(sum(readChart(all)), decided.filter(({ action }) => action !== 'mcp_tools_list').length)
  },
)

await t.test(
  'a time that is none is named, what was typed stays, and what is less than RFC 3339 is understood',
  async (t) => {
    const gateway = await testGateway(t)
    await called(gateway, 1, 0)
    const jar = await signedInBySecret(gateway)
    const page = (since: string, until = '') =>
      jar.ask('GET', `/proxy/activity?${new URLSearchParams({ since, until }).toString()}`)
    for (const wrong of [
      'yesterday',
      '2026-02-30',
      '2026-13-01',
      '2026-11-22T25:00Z',
      '"><b>x',
      '22.11.2026',
    ]) {
      const { status, text } = await page(wrong)
      t.equal(status, 422, wrong)
      t.match(text, 'is not a date and time, such as 2026-11-22', wrong)
      t.match(
        text,
        `value="${wrong.replaceAll('"', '&quot;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')}"`,
      )
      t.match(text, 'aria-invalid="true" aria-describedby="since-problem"')
      t.notMatch(text, 'id="calls"')
    }
    t.match((await page('2026-11-22', '2026-11-21')).text, 'is not later than the start')
    for (const right of [
      '2026-11-22',
      '2026-11-22 14:30',
      '2026-11-22T14:30:00.5Z',
      '2026-11-22t14:30+02:00',
    ])
      t.equal((await page(right)).status, 200, right)
    t.equal((await jar.ask('GET', '/proxy/activity?cursor=x')).status, 422)
  },
)

/** Resolves with whether a stream has been told of rows since it was opened. */
const told = ({ text }: { text: () => string }): Promise<boolean> =>
  eventually(
    () => /event: rows/.test(text()),
    (is) => is,
  )

/** Whether a stream is over within the time that a revocation may take. */
const ends = ({ over }: { over: Promise<void> }): Promise<boolean> => {
  let is = false
  void over.then(() => {
    is = true
  })
  return eventually(
    () => is,
    (over) => over,
    5_000,
  )
}

/** A browser that was signed in by an operator's certificate. */
async function certifiedJar(gateway: TestGateway, who: Identity): Promise<Jar> {
  const jar = new Jar({ call: (_who, method, path, asked) => gateway.call(who, method, path, asked) })
  const { status, text } = await jar.send('/proxy/sign-in/certificate', {})
  if (status !== 303) throw new Error(`${status} ${text}`)
  return jar
}

await t.test('a chart that begins in archived times has bars of days', (t) => {
  const [now, day] = [Date.parse('2026-11-20T12:00:00.000Z'), 86_400_000]
  const unitOf = (since: number, archived: number) =>
    barWindow({ ...NOTHING_TYPED, window: null, since: now - since, until: now }, now, now - archived).unit
  t.equal(unitOf(day / 2, 7 * day), 600_000)
  t.equal(unitOf(6 * day, 7 * day), 4 * 3_600_000)
  t.equal(unitOf(8 * day, 7 * day), day)
  t.equal(unitOf(8 * day, 9 * day), 4 * 3_600_000)
  t.equal(unitOf(300 * day, 7 * day), 7 * day)
  t.end()
})

await t.test('who follows is told that there was a call, and nothing of what it was', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  const stream = await following(t, gateway, jar)
  t.equal(stream.status, 200)
  await called(gateway, 1, 0)
  t.ok(await told(stream))
  t.match(stream.text(), /^retry: 2000\n\n(event: rows\ndata: \d+\n\n)+$/)
})

await t.test('following demands a session that holds admin.audit, and ends with either', async (t) => {
  const gateway = await testGateway(t)
  const nobody = new Jar(gateway)
  t.equal((await following(t, gateway, nobody)).status, 401)
  const capabilities = ['admin.read', 'admin.audit']
  const [alice, bob, carol] = [
    await operatorNamed(gateway, 'alice', capabilities),
    await operatorNamed(gateway, 'bob', capabilities),
    await operatorNamed(gateway, 'carol', ['admin.read']),
  ]
  t.equal((await following(t, gateway, await certifiedJar(gateway, carol), carol)).status, 403)
  const [ofAlice, ofBob] = [await certifiedJar(gateway, alice), await certifiedJar(gateway, bob)]
  const [one, two] = [await following(t, gateway, ofAlice, alice), await following(t, gateway, ofBob, bob)]
  t.same([one.status, two.status], [200, 200])
  await gateway.admin('PATCH', `/v1/admin/operators/${alice.id}/capabilities`, {
    capabilities: ['admin.read'],
  })
  t.ok(await ends(one), 'the capability was taken away')
  await gateway.admin('DELETE', `/v1/admin/operators/${bob.id}`)
  t.ok(await ends(two), 'the operator was deactivated')
  const jar = await signedInBySecret(gateway)
  const three = await following(t, gateway, jar)
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  await jar.send('/proxy/sign-out', { csrf })
  t.ok(await ends(three), 'the session was ended')
})

await t.test('a page that follows does not keep a session that nobody uses', async (t) => {
  let at = Date.now()
  const gateway = await testGateway(t, { clock: () => at })
  const jar = await signedInBySecret(gateway)
  const stream = await following(t, gateway, jar)
  for (let minute = 0; minute < 14; minute += 1) {
    at += 60_000
    t.equal(
      (await jar.ask('GET', '/proxy/activity', { 'x-sallyport-watching': 'yes' })).status,
      200,
      `after ${minute + 1} minutes`,
    )
  }
  at += 120_000
  t.ok(await ends(stream), 'unused for 16 minutes')
  t.equal((await jar.ask('GET', '/proxy/activity')).status, 303)
})

await t.test('a fifth page of one operator is refused, and follows once another one is closed', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInBySecret(gateway)
  const [first] = await Promise.all([1, 2, 3, 4].map(() => following(t, gateway, jar)))
  const fifth = await following(t, gateway, jar)
  t.equal(fifth.status, 503)
  first?.hangUp()
  const status = await eventually(
    async () => (await following(t, gateway, jar)).status,
    (is) => is === 200,
  )
  t.equal(status, 200)
})

await t.test('a stop does not wait for those who follow', async (t) => {
  const gateway = await testGateway(t)
  const stream = await following(t, gateway, await signedInBySecret(gateway))
  const from = performance.now()
  await gateway.close(60_000)
  t.ok(performance.now() - from < 20_000)
  t.ok(await ends(stream))
})
