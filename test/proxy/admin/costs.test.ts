import t from 'tap'
import type { SpentCall } from '../../support/db/counts.ts'
import { spentStage } from '../../support/spent.ts'

t.setTimeout(120_000)

const DAY_MS = 86_400_000
const NOW = Date.now()
const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 10)
const [TODAY, BEFORE] = [dayOf(NOW), dayOf(NOW - DAY_MS)]

const callsOf = ({ bot, zoe }: { readonly bot: string; readonly zoe: string }): readonly SpentCall[] => [
  ...Array.from({ length: 40 }, (_, n) => ({
    ...{ id: `req_${n}`, at: NOW - (n % 2) * DAY_MS, tokens: { input: 100, output: n, cache_read: 10 } },
    cost: { microusd: 4_200 + n, priced: n === 0 ? 'estimated' : 'stated', price: 'ab'.repeat(8) },
    names: { principal_id: n % 4 === 0 ? zoe : bot, model: `model-${n % 5}` },
  })),
  {
    ...{ id: 'req_odd', at: NOW, cost: { priced: 'unpriced' } },
    names: { principal_id: bot, model: '=HYPERLINK("https://example.org")' },
  },
  {
    ...{ id: 'req_tool', at: NOW, cost: { microusd: 1_000, priced: 'stated' } },
    names: {
      principal_id: bot,
      action: 'mcp_tools_call',
      model: null,
      provider: null,
      tool: 'github.search',
    },
  },
]

await t.test('costs are summed by what one asks for, in pages, and as a table', async (t) => {
  const { gateway, zoe } = await spentStage(t, callsOf)
  const ask = async (query: string) => gateway.admin('GET', `/v1/admin/costs?${query}`)
  const window = `from=${BEFORE}&to=${TODAY}`
  const total = {
    calls: 42,
    microusd: 40 * 4_200 + 780 + 1_000,
    estimated_microusd: 4_200,
    unpriced_calls: 1,
  }

  await t.test('by day, by default', async (t) => {
    const { status, json } = await ask(window)
    t.equal(status, 200)
    t.match(json, { from: BEFORE, to: TODAY, by: ['day'], total, uncounted: Number, next_cursor: null })
    t.match(json.rows, [
      { day: BEFORE, calls: 20, microusd: 20 * 4_200 + 400, input_tokens: 2_000 },
      { day: TODAY, calls: 22, estimated_calls: 1, unpriced_calls: 1, cache_read_tokens: 200 },
    ])
    t.match((await ask('')).json, { from: `${TODAY.slice(0, 8)}01`, to: TODAY })
  })

  await t.test('by principal, with the name of a user, and by tool', async (t) => {
    const { json } = await ask(`by=principal,tool&${window}`)
    const [user] = json.rows.filter(({ principal }: { principal: string }) => principal === zoe)
    t.match(user, { principal_type: 'user', principal_name: /zoe/, tool: null, calls: 10 })
    t.match(
      json.rows.filter(({ tool }: { tool: string | null }) => tool !== null),
      [{ principal_type: 'agent', tool: 'github.search', microusd: 1_000 }],
    )
    t.match((await ask(`by=model&principal=${user.principal_name}&${window}`)).json.total, { calls: 10 })
    t.match((await ask(`principal=nobody&${window}`)).json, { rows: [], total: { calls: 0, microusd: 0 } })
  })

  await t.test('page by page, and the dearest first', async (t) => {
    const by = `by=model,principal&${window}`
    const whole = (await ask(by)).json.rows
    const paged = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { json } = await ask(`${by}&limit=3${cursor && `&cursor=${cursor}`}`)
      t.match(json.total, total)
      paged.push(...json.rows)
      cursor = json.next_cursor
    }
    t.same(paged, whole)
    const { json } = await ask(`${by}&order=cost&limit=2`)
    t.match(json, { next_cursor: null, rows: [{}, {}] })
    t.ok(json.rows[0].microusd >= json.rows[1].microusd)
  })

  await t.test('as CSV by Accept or by format, whole, and run by no spreadsheet', async (t) => {
    const path = `by=principal,model&limit=2&${window}`
    const asked = await gateway.admin('GET', `/v1/admin/costs?${path}`, undefined, { accept: 'text/csv' })
    const { text, headers, status } = await ask(`${path}&format=csv`)
    t.same([status, headers['content-type']], [200, 'text/csv'])
    t.equal(asked.text, text)
    const [head = '', ...lines] = text.split('\r\n')
    t.match(head, /^principal,principal_type,principal_name,model,calls,.*,microusd,.*,usd$/)
    t.equal(lines.pop(), '')
    t.equal(lines.length, (await ask(`by=principal,model&${window}`)).json.rows.length)
    const sum = lines.reduce((all, line) => all + Number(line.split(',').at(-1)), 0)
    t.equal(Math.round(sum * 1e6), total.microusd)
    t.ok(lines.some((line) => line.includes(`,"'=HYPERLINK(""https://example.org"")",`)))
    t.notMatch(text, /(^|[,"])=/m)
    t.match((await ask(`${path}&format=json`)).json, { rows: [{}, {}] })
  })

  await t.test('each parameter that is wrong is named, with what it must be', async (t) => {
    const cases: readonly (readonly [query: string, field: string, message: RegExp])[] = [
      ['by=team', 'by', /one or more of day, principal, provider, model, tool/],
      ['by=day,day', 'by', /each once/],
      ['by=', 'by', /one or more/],
      ['from=2026-02-30', 'from', /day of the calendar/],
      ['to=yesterday', 'to', /such as 2026-11-01/],
      [`from=${TODAY}&to=${BEFORE}`, 'to', /must not be before from/],
      ['from=2020-01-01&to=2026-01-01', 'from', /at most 400 days/],
      ['limit=0', 'limit', /./],
      ['limit=1001', 'limit', /./],
      ['order=name', 'order', /./],
      ['cursor=bm8', 'cursor', /not a cursor of this question/],
      ['order=cost&cursor=WyIyMDI2LTExLTAxIl0', 'cursor', /order=key/],
      ['by=day,model&cursor=WyIyMDI2LTExLTAxIl0', 'cursor', /not a cursor of this question/],
      ['format=xml', 'format', /./],
      ['team=red', 'team', /not a field/],
    ]
    for (const [query, field, message] of cases) {
      const { status, json } = await ask(query)
      t.equal(status, 422, query)
      t.match(json.detail.errors, [{ field, message }], query)
    }
    t.match((await ask('format=csv&by=team')).json, { error: { code: 'body_unprocessable' } })
  })

  await t.test('they need admin.audit', async (t) => {
    t.equal((await gateway.call(null, 'GET', '/v1/admin/costs')).status, 403)
    const api = (await gateway.call(null, 'GET', '/openapi.json')).json
    t.match(JSON.stringify(api.paths['/v1/admin/costs'].get), /admin\.audit/)
  })

  t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
})

await t.test('an erased user is a pseudonym, and its costs stay', async (t) => {
  const { gateway, zoe } = await spentStage(t, callsOf)
  const window = `by=principal&from=${BEFORE}`
  const named = (await gateway.admin('GET', `/v1/admin/costs?${window}`)).json.rows
  const id = named.find(({ principal }: { principal: string }) => principal === zoe).principal_name
  t.match(await gateway.admin('POST', `/v1/admin/users/${id}/erase`), { status: 204 })
  for (const format of ['json', 'csv']) {
    const { text } = await gateway.admin('GET', `/v1/admin/costs?${window}&format=${format}`)
    t.match(text, zoe)
    t.notMatch(text, /zoe/, format)
  }
  t.match((await gateway.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
})
