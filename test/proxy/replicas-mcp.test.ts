import t, { type Test } from 'tap'
import { endPresence } from '../support/db/postgres/replica.ts'
import { twoStages } from '../support/db/postgres/stages.ts'
import type { Answered, Identity, Json } from '../support/gateway.ts'
import { openStream } from '../support/mcp/open-stream.ts'
import { type RawMcp, result, sse } from '../support/mcp/raw-upstream.ts'
import { legacyWith, type Stage, tool, toolServer } from '../support/mcp/stage.ts'
import { eventually } from '../support/settled.ts'

// The next connection of a client may come to another replica.

const INITIALIZE = {
  protocolVersion: '2025-11-25',
  capabilities: { elicitation: {}, sampling: {} },
  clientInfo: { name: 'test', version: '1' },
}

async function session(
  stage: Stage,
  who: Identity,
  params: Json = INITIALIZE,
): Promise<Record<string, string>> {
  const { status, headers } = await stage.rpc(who, 'initialize', { params })
  if (status !== 200) throw new Error(`initialize: ${status}`)
  return { 'mcp-session-id': String(headers['mcp-session-id']), 'mcp-protocol-version': '2025-11-25' }
}

/** Two replicas, and a server that both reach. Its tool asks before it answers, or says nothing at all. */
async function ground(t: Test) {
  const { url, one, other } = await twoStages(t)
  const answers: Json[] = []
  const hungUp: Json[] = []
  let finish = (): void => {}
  const plain = legacyWith([tool('ask'), tool('wait')], (res, told) => {
    const { name } = told.message.params as Json
    res.once('close', () => {
      if (!res.writableEnded) hungUp.push(name)
    })
    if (name === 'wait') return
    const send = sse(res)
    send({ jsonrpc: '2.0', id: 0, method: 'elicitation/create', params: { message: 'Sure?' } })
    finish = () => {
      send(result(told, { content: [{ type: 'text', text: 'done' }] }))
      res.end()
    }
  })
  const server: RawMcp = await toolServer(t, [tool('ask'), tool('wait')])
  server.act = (res, told) => {
    if (told.message.method !== undefined || told.method === 'DELETE') return plain(res, told)
    answers.push(told.message)
    res.writeHead(202).end()
    finish()
  }
  const asks = await one.register('asks', server, { required_capability: 'asks.use' })
  const bot = await one.enroll('bot', ['asks.use'])
  const eve = await one.enroll('eve', ['asks.use'])
  for (const who of [bot, eve]) await one.bind(who, asks)
  return { url, one, other, server, bot, eve, answers, hungUp }
}

const ping = (stage: Stage, who: Identity, headers: Record<string, string>) =>
  stage.rpc(who, 'ping', { headers })
const end = (stage: Stage, who: Identity, headers: Record<string, string>) =>
  stage.call(who, 'DELETE', '/v1/mcp', { headers })

t.test('a session that one replica has opened is honoured at the other, and ended at all', async (t) => {
  const { url, one, other, bot, eve } = await ground(t)
  const [headers, unused, missed] = [
    await session(one, bot),
    await session(one, bot),
    await session(one, bot),
  ]
  t.equal((await ping(other, bot, headers)).status, 200)
  t.equal((await ping(other, eve, headers)).status, 404, 'threat 6: another principal')
  t.equal((await end(other, eve, headers)).status, 404)
  const changed = { ...headers, 'mcp-session-id': `${headers['mcp-session-id']}A` }
  t.equal((await ping(other, bot, changed)).status, 404, 'another text')

  t.equal((await end(one, bot, headers)).status, 204)
  t.equal((await end(other, bot, headers)).status, 404, 'once')
  const gone = await eventually(
    () => ping(other, bot, headers),
    (answer: Answered) => answer.status === 404,
  )
  t.equal(gone.status, 404, 'the other one had used it')

  t.equal((await end(one, bot, unused)).status, 204)
  t.equal((await ping(other, bot, unused)).status, 404, 'the other one had never seen it')

  t.equal((await ping(other, bot, missed)).status, 200)
  await endPresence(url)
  t.equal((await end(one, bot, missed)).status, 204)
  const status = async () => (await ping(other, bot, missed)).status
  t.equal(await eventually(status, (is) => is === 404), 404, 'nor has it heard of this end')
  t.equal((await ping(one, bot, missed)).status, 404)
})

t.test('a session is named in the ledger by its name alone, at whichever replica', async (t) => {
  const { one, other, bot } = await ground(t)
  const headers = await session(one, bot)
  const [name = ''] = headers['mcp-session-id']?.split('.') ?? []
  for (const stage of [one, other]) await stage.rpc(bot, 'tools/list', { headers })
  const rows = await one.rows({ action: 'mcp_tools_list' })
  const named = rows.map(({ detail }) => detail.session_id).filter((id) => id !== undefined)
  t.same(new Set(named), new Set([name]))
  t.equal(name.length, 16)
})

t.test('a client that says much of itself is told what is too much', async (t) => {
  const { one, other, bot } = await ground(t)
  const text = (length: number) => Array.from({ length }, () => Math.random().toString(36)[2]).join('')
  const long = await session(one, bot, { ...INITIALIZE, clientInfo: { name: text(8_000), version: '1' } })
  t.equal((await ping(other, bot, long)).status, 200, 'what it is called is left out')
  const params = { ...INITIALIZE, capabilities: { elicitation: {}, experimental: { x: text(8_000) } } }
  t.match((await one.rpc(bot, 'initialize', { params })).json.error, { message: /too large/ })
})

t.test('a call at one replica is cancelled at the other', async (t) => {
  const { one, other, bot, eve, server, hungUp } = await ground(t)
  const headers = await session(one, bot)
  const waiting = one.callTool(bot, 'asks.wait', {}, { headers, id: 'call-1' })
  await eventually(
    () => server.of('tools/call').length,
    (count) => count === 1,
  )
  const cancel = (who: Identity, requestId: string, given = headers) =>
    other.call(who, 'POST', '/v1/mcp', {
      headers: given,
      body: { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } },
    })
  await cancel(eve, 'call-1', await session(other, eve))
  await cancel(bot, 'call-2')
  t.same(hungUp, [])
  t.equal((await cancel(bot, 'call-1')).status, 202)
  await waiting
  await eventually(
    () => hungUp.length,
    (count) => count > 0,
  )
  t.same(hungUp, ['wait'])
})

t.test(
  'a question of a call at one replica is answered at the other, once, by whom it was put to',
  async (t) => {
    const { one, other, bot, eve, answers } = await ground(t)
    const headers = await session(one, bot)
    const stream = await openStream(one, bot, 'tools/call', { headers, params: { name: 'asks.ask' }, id: 1 })
    const question = await stream.next()
    t.match(question, { method: 'elicitation/create' })
    const answer = (who: Identity, given: Record<string, string>, content: Json) =>
      other.call(who, 'POST', '/v1/mcp', {
        headers: given,
        body: { jsonrpc: '2.0', id: question.id, result: { action: 'accept', content } },
      })
    t.match((await answer(eve, await session(other, eve), {})).json.error, { message: /No such request/ })
    const tooLong = await answer(bot, headers, { text: 'x'.repeat(500_000) })
    t.match(tooLong.json.error, { message: /on the connection/ })
    t.same(answers, [])

    const content = { text: 'ä'.repeat(20_000) }
    const given = await Promise.all([1, 2, 3].map(() => answer(bot, headers, content)))
    t.equal(given.filter(({ status }) => status === 202).length, 1)
    t.match(await stream.next(), { id: 1, result: { content: [{ text: 'done' }] } })
    t.same(answers, [{ jsonrpc: '2.0', id: 0, result: { action: 'accept', content } }])
    const rows = await one.rows({ action: 'mcp_response', status: 'allowed' })
    t.equal(rows[0]?.tool, 'asks.ask', 'the tool whose call it answers')
    stream.hangUp()
  },
)

t.test('an answer passes the gate of the replica that it comes to, as it stands then', async (t) => {
  const { one, other, bot, answers } = await ground(t)
  const headers = await session(one, bot)
  const stream = await openStream(one, bot, 'tools/call', { headers, params: { name: 'asks.ask' }, id: 1 })
  const { id } = await stream.next()
  await one.grant(bot, ['other.use'])
  const body = { jsonrpc: '2.0', id, result: {} }
  const { json } = await other.call(bot, 'POST', '/v1/mcp', { headers, body })
  // Where the stream was cut first, there is no such question any more.
  t.ok([-32005, -32600].includes(json.error?.code), JSON.stringify(json))
  t.same(answers, [])
  stream.hangUp()
})
