import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import { skipWithoutFile } from '../support/db/engine.ts'
import { nonceOf, proof, proofSigner } from '../support/dpop.ts'
import { type Agent, chatOn, flood, type Send } from '../support/flood.ts'
import { CHAT, type Identity, type Json, type TestGateway, testGateway } from '../support/gateway.ts'
import { lockDatabase } from '../support/locker.ts'
import { eventually } from '../support/settled.ts'

const MINUTE_MS = 60_000
/** The refusals of one kind within a minute that are rows of their own. */
const OWN = 60
const CHAT_PATH = '/v1/chat/completions'

const toolCall =
  (gateway: TestGateway, who: Identity, name: (n: number) => string) =>
  (agent: Agent): Send =>
  (n) => {
    const body = { jsonrpc: '2.0', id: n, method: 'tools/call', params: { name: name(n) } }
    return gateway.call(who, 'POST', '/v1/mcp', { body, agent })
  }

/** A gateway whose clocks the test sets: the wall's and the one that only goes forward. */
async function clocked(t: Test) {
  const clocks = { wall: Date.now(), passed: 0 }
  const gateway = await testGateway(t, {
    clock: () => clocks.wall,
    monotonic: () => clocks.passed,
  })
  return { gateway, clocks }
}

const deniedRows = (gateway: TestGateway, who: Identity): Promise<readonly AuditRow[]> =>
  gateway.rows({ principal: who.id, status: 'denied', order: 'asc', limit: 1000 })

const isSummary = ({ detail }: AuditRow): boolean => 'summarised' in detail

const summaryOf = (row: AuditRow | undefined): Json => row?.detail.summarised

/** The summaries of a principal, once there are so many. */
const summaries = (gateway: TestGateway, who: Identity, many = 1): Promise<readonly AuditRow[]> =>
  eventually(
    async () => (await deniedRows(gateway, who)).filter(isSummary),
    (rows) => rows.length >= many,
  )

/** The log lines of refusals that the summary stands for, in the order that they were counted in. */
const linesOf = (gateway: TestGateway, { principal_id, action, detail }: AuditRow): readonly Json[] =>
  gateway.log
    .filter(({ principal, reason, summarised }) => {
      const { since } = summaryOf({ detail } as AuditRow)
      const same = summarised?.action === action && summarised.since === since
      return same && principal === principal_id && reason === detail.reason
    })
    .toSorted((a, b) => a.summarised.n - b.summarised.n)

/** The digest as docs/ledger.md#summarised has it, from log lines alone. */
const digestOf = (lines: readonly Json[]): string =>
  lines.reduce((digest: string, { reqId, summarised: { at, body_sha256 } }) => {
    const text = `{"at":"${at}","body_sha256":${JSON.stringify(body_sha256)},"request_id":"${reqId}"}`
    return sha256(digest + text)
  }, '0'.repeat(64))

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex')

await t.test('D3: of a flood of denied calls 60 are rows, and one row counts the others', async (t) => {
  const { gateway, clocks } = await clocked(t)
  const nobody = await gateway.enroll('nobody', [])
  const other = await gateway.enroll('other', [])
  const TIMES = 2_000
  const answers = await flood(gateway, nobody, TIMES)
  t.strictSame([...new Set(answers.map(({ status }) => status))], [403])
  const receipts = answers.filter(({ headers }) => headers['audit-receipt'] !== undefined)
  t.equal(receipts.length, OWN, 'a receipt for each that has a row of its own')
  const [first, last] = [answers[0], answers.at(-1)]
  const shape = ({ json, headers }: Json) => [
    Object.keys(json),
    Object.keys(json.detail),
    Object.keys(headers).filter((name) => name !== 'audit-receipt'),
  ]
  t.strictSame(shape(last), shape(first), 'and otherwise the same answer')
  const own = await deniedRows(gateway, nobody)
  t.equal(own.length, OWN)
  t.notOk(own.some(isSummary))
  const ids = new Set(answers.map(({ headers }) => headers['x-request-id']))
  t.ok(own.every(({ request_id: id }) => id !== null && ids.has(id)))

  const neighbour = await gateway.call(other, 'POST', CHAT_PATH, { body: CHAT })
  t.ok(neighbour.headers['audit-receipt'], 'another principal has its rows')

  clocks.passed += MINUTE_MS
  const [row, ...more] = await summaries(gateway, nobody)
  if (!row) throw new Error('there is no summary')
  t.equal(more.length, 0)
  const count = TIMES - OWN
  t.match(row, {
    action: 'egress_llm_chat',
    status: 'denied',
    request_id: null,
    principal_id: nobody.id,
    principal_type: 'agent',
    tool: null,
    model: null,
    config_digest: own[0]?.config_digest,
    detail: {
      reason: 'capability_missing',
      refused_by: 'capability',
      required_capability: 'llm.chat',
      summarised: { count },
    },
  })
  t.strictSame(Object.keys(summaryOf(row)).toSorted(), ['count', 'digest', 'since', 'until'])
  const lines = await eventually(
    () => linesOf(gateway, row),
    ({ length }) => length === count,
  )
  t.strictSame(
    lines.map(({ summarised }) => summarised.n),
    Array.from({ length: count }, (_, index) => index + 1),
  )
  const committed = new Set(lines.map(({ summarised }) => summarised.body_sha256))
  t.equal(committed.size, count, 'nobody can see that the bodies were the same')
  t.notOk(committed.has(sha256(JSON.stringify(CHAT))))
  t.equal(digestOf(lines), summaryOf(row).digest, 'whoever has the log lines can prove each of them')
  t.not(digestOf(lines.slice(1)), summaryOf(row).digest)
  const shown = await gateway.admin('GET', `/v1/admin/audit?principal=${nobody.id}&limit=1`)
  t.strictSame(shown.json.rows[0], JSON.parse(JSON.stringify(row)), 'the API shows it')
  const { text } = await gateway.admin('GET', '/metrics')
  t.match(text, `sallyport_refusals_summarised_total ${count}\n`)
})

await t.test('D3: the names that a caller makes up make no kinds of their own', async (t) => {
  const { gateway, clocks } = await clocked(t)
  const nobody = await gateway.enroll('nobody', [])
  await flood(
    gateway,
    nobody,
    200,
    toolCall(gateway, nobody, (n) => `tool-${n}`),
  )
  const models = (agent: Agent): Send => {
    return (n) => gateway.call(nobody, 'POST', CHAT_PATH, { body: { ...CHAT, model: `gpt-${n}` }, agent })
  }
  await flood(gateway, nobody, 200, models)
  t.equal((await deniedRows(gateway, nobody)).length, 2 * OWN)
  clocks.passed += MINUTE_MS
  const rows = await summaries(gateway, nobody, 2)
  t.strictSame(Object.fromEntries(rows.map((row) => [row.action, summaryOf(row).count])), {
    egress_llm_chat: 200 - OWN,
    mcp_tools_call: 200 - OWN,
  })
})

await t.test('D3: what the same principal is allowed has all its rows', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const both = (agent: Agent): Send => {
    const chat = chatOn(gateway, bot)(agent)
    const tool = toolCall(gateway, bot, () => 'files.read')(agent)
    return (n) => (n % 4 === 0 ? chat(n) : tool(n))
  }
  const answers = await flood(gateway, bot, 400, both)
  const allowed = answers.filter(({ headers }, n) => n % 4 === 0 && headers['audit-receipt'] !== undefined)
  t.equal(allowed.length, 100)
  await gateway.close(0)
  const rows = await gateway.rows({ action: 'egress_llm_chat', order: 'asc', limit: 1000 })
  t.strictSame(
    ['allowed', 'success'].map((word) => rows.filter(({ status }) => status === word).length),
    [100, 100],
  )
  const [summary] = (await deniedRows(gateway, bot)).filter(isSummary)
  t.equal(summaryOf(summary).count, 300 - OWN, 'and a stop writes what was counted')
})

await t.test('D3: a minute is one that passes, however the clock is set', async (t) => {
  const { gateway, clocks } = await clocked(t)
  const nobody = await gateway.enroll('nobody', [])
  await flood(gateway, nobody, 100)
  const since = clocks.wall
  clocks.wall += 2 * MINUTE_MS
  const { headers } = await gateway.call(nobody, 'POST', CHAT_PATH, { body: CHAT })
  t.notOk(headers['audit-receipt'], 'no time has passed')
  clocks.passed += MINUTE_MS
  const again = await gateway.call(nobody, 'POST', CHAT_PATH, { body: CHAT })
  t.ok(again.headers['audit-receipt'], 'a new minute begins with rows')
  const [row] = await summaries(gateway, nobody)
  t.match(summaryOf(row), {
    count: 101 - OWN,
    since: new Date(since).toISOString(),
    until: new Date(since + 2 * MINUTE_MS).toISOString(),
  })
  clocks.wall = since
  t.ok((await gateway.call(nobody, 'POST', CHAT_PATH, { body: CHAT })).headers['audit-receipt'])
})

await t.test('D3: the proof of a refusal without a row does not pass when it comes again', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', [])
  const signer = proofSigner()
  const nonce = await nonceOf(gateway, bot)
  const htu = `${gateway.url}${CHAT_PATH}`
  const send = (dpop: string, agent?: Agent) =>
    gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT, headers: { dpop }, ...(agent && { agent }) })
  const proofs = Array.from({ length: OWN + 20 }, () => proof(signer, { htm: 'POST', htu, nonce }))
  const refused = await flood(gateway, bot, proofs.length, (agent) => (n) => send(proofs[n] ?? '', agent))
  t.strictSame([...new Set(refused.map(({ json }) => json.reason))], ['capability_missing'])
  const rowless = proofs.filter((_, n) => refused[n]?.headers['audit-receipt'] === undefined)
  t.equal(rowless.length, 20)
  await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: ['llm.chat'] })
  for (const dpop of rowless) t.match(await send(dpop), { status: 401, json: { reason: 'proof_invalid' } })
  t.equal(gateway.upstream.seen.length, 0)
  const replays = await flood(gateway, bot, 100, (agent) => () => send(proofs[0] ?? '', agent))
  t.strictSame([...new Set(replays.map(({ json }) => json.reason))], ['proof_invalid'])
  t.equal(gateway.upstream.seen.length, 0)
  await gateway.close(0)
  const rows = await deniedRows(gateway, bot)
  const counted = rows.filter(isSummary).map((row) => [row.detail.reason, summaryOf(row).count])
  t.strictSame(
    Object.fromEntries(counted),
    { capability_missing: 20, proof_invalid: 120 - OWN },
    'replays are a kind too',
  )
  t.equal(rows.length, 2 * OWN + 2)
  const row = rows.find(({ detail }) => 'summarised' in detail && detail.reason === 'proof_invalid')
  t.equal(row && digestOf(linesOf(gateway, row)), summaryOf(row).digest)
})

await t.test(
  'D3: while the ledger cannot be written nothing is counted, and what was is kept',
  { skip: skipWithoutFile },
  async (t) => {
    const { gateway, clocks } = await clocked(t)
    const nobody = await gateway.enroll('nobody', [])
    await flood(gateway, nobody, 100)
    const release = await lockDatabase(t, gateway.settings.databaseUrl.replace('sqlite:', ''))
    const { status } = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'late' })
    t.equal(status, 503)
    const refused = await gateway.call(nobody, 'POST', CHAT_PATH, { body: CHAT })
    t.match(refused, { status: 503, json: { reason: 'audit_unavailable' } })
    clocks.passed += MINUTE_MS
    await release()
    const [row] = await summaries(gateway, nobody)
    t.equal(summaryOf(row).count, 100 - OWN)
  },
)
