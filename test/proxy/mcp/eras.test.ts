import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import t from 'tap'
import { META_KEYS } from '../../../proxy/mcp/protocol/versions.ts'
import type { Identity, Json } from '../../support/gateway.ts'
import { startFixture } from '../../support/mcp/fixture.ts'
import { openStream } from '../../support/mcp/open-stream.ts'
import { type Act, error, rawMcp, result, sendJson, sse, type Told } from '../../support/mcp/raw-upstream.ts'
import { called, echo, legacyWith, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const FORM = { message: 'Sure?', requestedSchema: { type: 'object', properties: {} } }
const ALL = { elicitation: { form: {}, odd: {} }, sampling: {}, roots: {} }
const NOTE = {
  jsonrpc: '2.0',
  method: 'notifications/message',
  params: { level: 'info', data: 'at work' },
}
const said = (text: string): Json => ({ content: [{ type: 'text', text }] })

/** A legacy server that asks these questions in turn, and then answers with what it was told. */
async function asking(
  t: Parameters<typeof mcpStage>[0],
  questions: readonly string[] = ['elicitation/create'],
) {
  const open = new Map<string, { send: (value: unknown) => void; told: Told; res: ServerResponse }>()
  const answers: Json[] = []
  const next = (key: string, at: number): void => {
    const call = open.get(key)
    if (!call) return
    const method = questions[at]
    if (method !== undefined) {
      call.send({ jsonrpc: '2.0', id: `${key}/${at}`, method, params: method === 'roots/list' ? {} : FORM })
      return
    }
    call.send(result(call.told, said(JSON.stringify(answers))))
    call.res.end()
  }
  const act: Act = (res, told) => {
    const send = sse(res)
    send(NOTE)
    open.set(String(told.id), { send, told, res })
    next(String(told.id), 0)
  }
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('ask'), tool('pay')])
  const plain = legacyWith([tool('ask'), tool('pay')], act)
  server.act = (res, told) => {
    if (told.message.result === undefined && told.message.error === undefined) return plain(res, told)
    answers.push(told.message)
    res.writeHead(202).end()
    const [key = '', at] = String(told.id).split('/')
    next(key, Number(at) + 1)
  }
  const up = await stage.register('up', server, { required_capability: 'up.use' })
  const bot = await stage.enroll('bot', ['up.use'])
  const eve = await stage.enroll('eve', ['up.use'])
  await stage.bind(bot, up)
  await stage.bind(eve, up)
  const call = async (
    who: Identity,
    more: Json = {},
    { at = '/up', name = 'ask', capabilities = ALL } = {},
  ) => {
    const { args = {}, ...params } = more
    const _meta = { [META_KEYS.capabilities]: capabilities }
    const headers = { accept: 'application/json' }
    return (
      await stage.callTool(who, name, args, { at, modern: true, headers, params: { ...params, _meta } })
    ).json
  }
  return { stage, server, bot, eve, up, call, answers, open }
}

const ACCEPTED = { question: { action: 'accept', content: { sure: true } } }

await t.test(
  'a caller of the stateless era is asked what a server of the older one asks, and its answer goes back',
  async (t) => {
    for (const at of ['/up', ''] as const) {
      const { stage, server, bot, call, answers } = await asking(t, [
        'elicitation/create',
        'sampling/createMessage',
        'roots/list',
      ])
      const name = at === '' ? 'up.ask' : 'ask'
      const given = [
        { action: 'accept', content: { sure: true } },
        { role: 'assistant', model: 'm', content: { type: 'text', text: 'Paris' } },
        { roots: [{ uri: 'file:///x' }] },
      ]
      let answer = (await call(bot, {}, { at, name })).result
      for (const [index, method] of [
        'elicitation/create',
        'sampling/createMessage',
        'roots/list',
      ].entries()) {
        t.match(answer, { resultType: 'input_required', inputRequests: { question: { method } } })
        const { requestState } = answer
        answer = (await call(bot, { requestState, inputResponses: { question: given[index] } }, { at, name }))
          .result
      }
      t.match(answer, { resultType: 'complete', content: [{ type: 'text' }] })
      t.match(
        answers.map((one) => one.result),
        given,
      )
      t.equal(server.of('tools/call').length, 1, 'one call at the server')
      t.match(
        server.of('initialize').at(-1)?.message.params,
        { capabilities: { elicitation: { form: {} }, sampling: {} } },
        'which was told what the caller can be asked',
      )
      const rows = await stage.rows({ action: 'mcp_tools_call', status: 'allowed' })
      t.equal(rows.length, 4, 'each round is a decision of its own')
      const outcomes = await eventually(
        () => stage.rows({ action: 'mcp_tools_call', status: 'success' }),
        (all) => all.length === 4,
      )
      t.equal(outcomes.filter(({ detail }) => detail.input_required === true).length, 3)
    }
  },
)

await t.test(
  'on a stream the caller gets what came before the question, and the rest on its own',
  async (t) => {
    const { stage, bot } = await asking(t)
    const _meta = { [META_KEYS.capabilities]: ALL }
    const first = await openStream(stage, bot, 'tools/call', {
      at: '/up',
      modern: true,
      params: { name: 'ask', _meta },
    })
    t.match(await first.next(), { method: 'notifications/message' })
    const { result: asked } = await first.next()
    t.match(asked, { resultType: 'input_required', inputRequests: { question: { params: FORM } } })
    t.ok(await first.clean)
    const { requestState } = asked
    const params = { name: 'ask', requestState, inputResponses: ACCEPTED, _meta }
    const second = await openStream(stage, bot, 'tools/call', { at: '/up', modern: true, params, id: 'two' })
    t.match(await second.next(), { id: 'two', result: { resultType: 'complete' } })
    t.ok(await second.clean)
    first.hangUp()
    second.hangUp()
  },
)

await t.test('nobody else, no other call, and nobody twice answers a question that waits', async (t) => {
  const { bot, eve, call, server, answers } = await asking(t)
  const { requestState } = (await call(bot, { args: { a: 1 } })).result
  const retry = { requestState, inputResponses: ACCEPTED }
  for (const [why, answer] of [
    ['another principal', call(eve, { ...retry, args: { a: 1 } })],
    ['another tool', call(bot, { ...retry, args: { a: 1 } }, { name: 'pay' })],
    ['other arguments', call(bot, { ...retry, args: { a: 2 } })],
    ['another state', call(bot, { ...retry, args: { a: 1 }, requestState: `${requestState}x` })],
  ] as const)
    t.equal((await answer).error?.code, -32602, why)
  t.same(answers, [])
  const again = (await call(bot, { requestState, args: { a: 1 } })).result
  t.match(again, { resultType: 'input_required' }, 'without an answer it is asked again')
  const both = await Promise.all([
    call(bot, { ...retry, args: { a: 1 } }),
    call(bot, { ...retry, args: { a: 1 } }),
  ])
  t.equal(both.filter((one) => one.result?.resultType === 'complete').length, 1)
  t.equal(both.filter((one) => one.error?.code === -32602).length, 1)
  t.equal(answers.length, 1)
  t.equal(server.of('tools/call').length, 1)
})

await t.test('a caller that cannot be asked is not, and the server hears so at once', async (t) => {
  const { bot, call, answers, server } = await asking(t)
  for (const capabilities of [{}, { sampling: {} }])
    t.match((await call(bot, {}, { capabilities: capabilities as typeof ALL })).result, {
      resultType: 'complete',
    })
  t.match(answers, [{ error: { code: -32601 } }, { error: { code: -32601 } }])
  t.same(
    server
      .of('initialize')
      .map(({ message }) => (message.params as Json).capabilities)
      .slice(-2),
    [{}, { sampling: {} }],
  )
})

await t.test('what is revoked while it waits ends within a second, and nobody else’s does', async (t) => {
  const { stage, server, bot, eve, up, call, answers, open } = await asking(t)
  const late = await stage.enroll('late', ['up.use'])
  const { binding_id } = await stage.bind(late, up)
  const revocations = [
    [bot, -32005, () => stage.grant(bot, ['other.use'])],
    [late, -32000, () => stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${binding_id}`)],
  ] as const
  const evesOwn = (await call(eve)).result
  for (const [at, [who, code, revoke]] of revocations.entries()) {
    const { requestState } = (await call(who)).result
    const stream = [...open.values()].at(-1)?.res
    t.equal(stream?.closed, false, 'it waits')
    const revoked = performance.now()
    await revoke()
    if (stream && !stream.closed) await once(stream, 'close')
    const took = performance.now() - revoked
    t.ok(took < 1_000, `${took} ms`)
    await eventually(
      () => server.of('notifications/cancelled'),
      (list) => list.length === at + 1,
    )
    t.equal((await call(who, { requestState, inputResponses: ACCEPTED })).error.code, code)
  }
  t.same(answers, [])
  const { requestState } = evesOwn
  t.match((await call(eve, { requestState, inputResponses: ACCEPTED })).result, { resultType: 'complete' })
})

await t.test('a caller that hangs up when it has answered has the call taken back', async (t) => {
  const { stage, bot, call, server, open } = await asking(t)
  const { requestState } = (await call(bot)).result
  const plain = server.act
  // It takes the answer, and is at work.
  server.act = (res, told) => {
    if (!told.message.result) return plain(res, told)
    res.writeHead(202).end()
    for (const { send } of open.values()) send(NOTE)
  }
  const _meta = { [META_KEYS.capabilities]: ALL }
  const params = { name: 'ask', requestState, inputResponses: ACCEPTED, _meta }
  const stream = await openStream(stage, bot, 'tools/call', { at: '/up', modern: true, params })
  t.match(await stream.next(), NOTE)
  stream.hangUp()
  const told = await eventually(
    () => server.of('notifications/cancelled'),
    (list) => list.length > 0,
  )
  t.equal(told.length, 1)
})

await t.test('the calls of a principal that wait are bounded: the oldest is ended', async (t) => {
  const { bot, call, server } = await asking(t)
  const states: string[] = []
  for (let index = 0; index < 17; index += 1)
    states.push((await call(bot, { args: { index } })).result.requestState)
  const retry = (index: number) =>
    call(bot, { args: { index }, requestState: states[index], inputResponses: ACCEPTED })
  t.equal((await retry(0)).error?.code, -32602)
  t.match((await retry(16)).result, { resultType: 'complete' })
  await eventually(
    () => server.of('notifications/cancelled'),
    (list) => list.length === 1,
  )
})

await t.test('a call that would hold much while it waits is asked nothing', async (t) => {
  const { bot, call, answers } = await asking(t)
  const big = await call(bot, { args: { text: 'x'.repeat(1024 * 1024) } })
  t.match(big.result, { resultType: 'complete' })
  t.match(answers, [{ result: { action: 'decline' } }])
  const less = await call(bot, { args: { text: 'x'.repeat(1_000_000) } })
  t.match(less.result, { resultType: 'input_required' })
})

await t.test('a server that dies while its question waits is told as lost', async (t) => {
  const { bot, call, server } = await asking(t)
  const { requestState } = (await call(bot)).result
  const plain = server.act
  server.act = (res, told) => {
    if (told.message.result) res.writeHead(400).end(JSON.stringify(error(null, -32600, 'unknown')))
    else return plain(res, told)
  }
  const { error: failed } = await call(bot, { requestState, inputResponses: ACCEPTED })
  t.match(failed, { code: -32003 })
})

await t.test(
  'logs are offered where one server is spoken to in the era of its caller, and their level reaches it',
  async (t) => {
    const stage = await mcpStage(t)
    const bot = await stage.enroll('bot', ['use'])
    const offered = async (at: string, modern: boolean): Promise<boolean> => {
      const params = { protocolVersion: '2025-11-25', capabilities: {} }
      const { json } = await stage.rpc(bot, modern ? 'server/discover' : 'initialize', {
        at,
        modern,
        params: modern ? {} : params,
      })
      return Object.hasOwn(json.result.capabilities, 'logging')
    }
    for (const [eras, modern, legacyToo] of [
      ['legacy', false, true],
      ['both', true, true],
      ['modern', true, false],
    ] as const) {
      const server = await startFixture(t, { eras })
      await stage.bind(bot, await stage.register(eras, server, { required_capability: 'use' }))
      t.equal(await offered(`/${eras}`, true), modern, `${eras} to a caller of the stateless era`)
      t.equal(await offered(`/${eras}`, false), legacyToo, `${eras} to a caller with a session`)
      if (!modern) continue
      const _meta = { [META_KEYS.capabilities]: {}, 'io.modelcontextprotocol/logLevel': 'debug' }
      const { text } = await stage.callTool(
        bot,
        'test_tool_with_logging',
        {},
        {
          at: `/${eras}`,
          modern: true,
          params: { _meta },
        },
      )
      t.match(text, /notifications\/message/, `${eras} logs`)
    }
    for (const modern of [true, false]) t.notOk(await offered('', modern), 'of several none is meant')
  },
)

await t.test(
  'no door declares changes, which it tells nobody of; who listens is refused at once',
  async (t) => {
    const stage = await mcpStage(t)
    const bot = await stage.enroll('bot', ['use'])
    const server = await startFixture(t, { eras: 'both' })
    await stage.bind(bot, await stage.register('up', server, { required_capability: 'use' }))
    for (const at of ['', '/up']) {
      for (const modern of [true, false]) {
        const params = modern ? {} : { protocolVersion: '2025-11-25', capabilities: {} }
        const { json } = await stage.rpc(bot, modern ? 'server/discover' : 'initialize', {
          at,
          modern,
          params,
        })
        t.match(json.result.capabilities, { tools: {}, resources: {} })
        for (const [name, declared] of Object.entries(json.result.capabilities)) t.same(declared, {}, name)
      }
      const params = { notifications: { toolsListChanged: true } }
      const refused = await stage.rpc(bot, 'subscriptions/listen', { at, modern: true, params })
      t.match(refused, { status: 404, json: { error: { code: -32601 } } })
      t.equal((await stage.call(bot, 'GET', `/v1/mcp${at}`)).status, 405)
    }
  },
)

const QUESTIONS = {
  name: { method: 'elicitation/create', params: FORM },
  'the model': { method: 'sampling/createMessage', params: { messages: [], maxTokens: 1 } },
}

/** A server of the stateless era alone, which asks these questions, round by round, and then says what it was told. */
async function stateless(t: Parameters<typeof mcpStage>[0], rounds: readonly Json[] = [QUESTIONS]) {
  const told: Json[] = []
  const server = await rawMcp(t, (res, seen) => {
    if (seen.rpc === 'server/discover')
      return sendJson(
        res,
        result(seen, {
          resultType: 'complete',
          supportedVersions: ['2026-07-28'],
          capabilities: { tools: {} },
        }),
      )
    if (seen.rpc === 'tools/list') return sendJson(res, result(seen, { tools: [tool('ask')] }))
    if (seen.rpc !== 'tools/call') return sendJson(res, error(seen.id, -32601, 'unknown'), 404)
    const params = seen.message.params as Json
    told.push(params)
    const round = Number(params.requestState ?? 0)
    const inputRequests = rounds[round]
    const asked = { resultType: 'input_required', inputRequests, requestState: String(round + 1) }
    sendJson(res, result(seen, inputRequests ? asked : { resultType: 'complete', ...said('done') }))
  })
  const stage = await mcpStage(t)
  const bot = await stage.enroll('bot', ['use'])
  await stage.bind(bot, await stage.register('up', server, { required_capability: 'use' }))
  const open = async (capabilities: Json = { elicitation: {}, sampling: {} }) => {
    const params = { protocolVersion: '2025-11-25', capabilities }
    const { headers } = await stage.rpc(bot, 'initialize', { at: '/up', params })
    return { 'mcp-session-id': String(headers['mcp-session-id']) }
  }
  const stream = (headers: Record<string, string>) =>
    openStream(stage, bot, 'tools/call', { at: '/up', headers, params: { name: 'ask', arguments: { a: 1 } } })
  const give = (headers: Record<string, string>, body: Json) =>
    stage.call(bot, 'POST', '/v1/mcp/up', { headers, body: { jsonrpc: '2.0', ...body } })
  return { stage, bot, told, open, stream, give }
}

await t.test(
  'a caller with a session is asked on its stream what a stateless server asks by results, round by round',
  async (t) => {
    const again = { again: { method: 'elicitation/create', params: FORM } }
    const { stage, told, open, stream, give } = await stateless(t, [QUESTIONS, again])
    const headers = await open()
    const other = await open()
    const asked = await stream(headers)
    const [first, second] = [await asked.next(), await asked.next()]
    t.match([first, second], [QUESTIONS.name, QUESTIONS['the model']])
    t.equal(
      (await give(other, { id: first.id, result: {} })).json.error.code,
      -32600,
      'no other session answers',
    )
    const answers = { name: { action: 'accept', content: { n: 1 } }, 'the model': { role: 'assistant' } }
    t.equal((await give(headers, { id: second.id, result: answers['the model'] })).status, 202)
    t.equal((await give(headers, { id: first.id, result: answers.name })).status, 202)
    const third = await asked.next()
    t.match(third, again.again)
    t.equal((await give(headers, { id: third.id, result: { action: 'decline' } })).status, 202)
    t.match(await asked.next(), { id: 1, result: said('done') })
    t.ok(await asked.clean)
    asked.hangUp()
    t.match(told, [
      {
        arguments: { a: 1 },
        _meta: { [META_KEYS.capabilities]: { elicitation: { form: {} }, sampling: {} } },
      },
      { arguments: { a: 1 }, inputResponses: answers, requestState: '1' },
      { inputResponses: { again: { action: 'decline' } }, requestState: '2' },
    ])
    t.equal((await stage.rows({ action: 'mcp_tools_call', status: 'allowed' })).length, 1)
    const answered = await stage.rows({ action: 'mcp_response', status: 'allowed' })
    t.match(answered, [{ tool: 'up.ask' }, { tool: 'up.ask' }, { tool: 'up.ask' }], 'each is a decision')
  },
)

await t.test('what a caller with a session did not say that it answers, it is not asked', async (t) => {
  const { told, stage, bot, open, stream, give } = await stateless(t)
  const refused = async (headers: Record<string, string>) =>
    (await stage.callTool(bot, 'ask', {}, { at: '/up', headers })).text
  const cure = /cannot be asked: use one that initializes, declares elicitation/
  t.match(await refused(await open({ elicitation: {} })), cure, 'one of two is not enough')
  t.match(await refused({ ...(await open()), accept: 'application/json' }), cure, 'it takes no stream')
  t.match(await refused({}), cure, 'it has no session')
  t.same(
    told.map(({ _meta }) => _meta[META_KEYS.capabilities]),
    [{ elicitation: { form: {} } }, {}, {}],
    'the server was told the truth',
  )
  const headers = await open()
  const asked = await stream(headers)
  const { id } = await asked.next()
  await give(headers, { id, error: { code: -1, message: 'The user does not want that.' } })
  const { id: other } = await asked.next()
  await give(headers, { id: other, result: {} })
  t.match(await asked.next(), { id: 1, error: { code: -1, message: 'The user does not want that.' } })
  t.ok(await asked.clean)
  asked.hangUp()
  t.equal(told.length, 4, 'the server is not called again')
})

await t.test(
  'a caller with a session that hangs up, or may no more, has its questions taken back',
  async (t) => {
    const { told, stage, bot, open, stream, give } = await stateless(t)
    const headers = await open()
    const left = await stream(headers)
    const { id } = await left.next()
    left.hangUp()
    await eventually(
      () => give(headers, { id, result: {} }),
      ({ json }) => json?.error?.code === -32600,
    )
    const asked = await stream(headers)
    const question = await asked.next()
    await stage.grant(bot, ['other.use'])
    t.equal((await give(headers, { id: question.id, result: {} })).json.error.code, -32005)
    asked.hangUp()
    t.equal(told.length, 2)
  },
)

await t.test(
  'a question that its server takes back is taken back from the caller, by the id it has there',
  async (t) => {
    const stage = await mcpStage(t)
    const told: Json[] = []
    const plain = legacyWith([tool('ask')], (res) => {
      const send = sse(res)
      const cancel = (requestId: unknown) =>
        send({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId, reason: 'late' } })
      for (const id of [0, '0']) send({ jsonrpc: '2.0', id, method: 'elicitation/create', params: FORM })
      for (const id of [1, 0, 0]) cancel(id)
      send(NOTE)
    })
    const server = await rawMcp(t, (res, seen) => {
      if (seen.message.method !== undefined || seen.method === 'DELETE') return plain(res, seen)
      told.push(seen.message)
      res.writeHead(202).end()
    })
    const bot = await stage.enroll('bot', ['use'])
    await stage.bind(bot, await stage.register('up', server, { required_capability: 'use' }))
    const params = { protocolVersion: '2025-11-25', capabilities: { elicitation: {} } }
    const opened = await stage.rpc(bot, 'initialize', { at: '/up', params })
    const headers = { 'mcp-session-id': String(opened.headers['mcp-session-id']) }
    const stream = await openStream(stage, bot, 'tools/call', { at: '/up', headers, params: { name: 'ask' } })
    const [first, second, taken, next] = [
      await stream.next(),
      await stream.next(),
      await stream.next(),
      await stream.next(),
    ]
    t.match(taken, { method: 'notifications/cancelled', params: { requestId: first.id, reason: 'late' } })
    t.match(next, NOTE, 'once, and no other')
    const give = (id: string) =>
      stage.call(bot, 'POST', '/v1/mcp/up', { headers, body: { jsonrpc: '2.0', id, result: {} } })
    t.equal((await give(first.id)).json.error.code, -32600, 'nobody waits for its answer')
    t.equal((await give(second.id)).status, 202)
    t.same(told, [{ jsonrpc: '2.0', id: '0', result: {} }])
    stream.hangUp()
  },
)

await t.test('a server is told of no tasks and no roots of a caller with a session', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('go')])
  const bot = await stage.enroll('bot', ['use'])
  await stage.bind(bot, await stage.register('up', server, { required_capability: 'use' }))
  const capabilities = { elicitation: {}, roots: {}, tasks: { requests: { elicitation: { create: {} } } } }
  const params = { protocolVersion: '2025-11-25', capabilities }
  const { headers, json } = await stage.rpc(bot, 'initialize', { at: '/up', params })
  t.notOk('tasks' in json.result.capabilities)
  const session = { 'mcp-session-id': String(headers['mcp-session-id']) }
  await stage.callTool(bot, 'go', {}, { at: '/up', headers: session, params: { task: { ttl: 1 } } })
  const told = server.of('initialize').at(-1)?.message.params as Json
  t.same(Object.keys(told.capabilities), ['elicitation'])
  t.same(server.of('tools/call').at(-1)?.message.params, { name: 'go', arguments: {} })
})

/** A server of the newer era alone, which refuses what older clients send as such servers do. */
const newerAlone =
  (
    tools: readonly Json[],
    act: Act = echo,
    refuse: (res: ServerResponse, told: Told) => void = refuseVersion,
  ): Act =>
  (res, told) => {
    if (told.headers['mcp-protocol-version'] !== '2026-07-28') return refuse(res, told)
    if (told.rpc === 'server/discover')
      return sendJson(
        res,
        result(told, {
          resultType: 'complete',
          supportedVersions: ['2026-07-28'],
          capabilities: { tools: {} },
        }),
      )
    if (told.rpc === 'tools/list') return sendJson(res, result(told, { resultType: 'complete', tools }))
    return act(res, told)
  }
const plainly =
  (type: string, text: string) =>
  (res: ServerResponse): void => {
    res.writeHead(400, { 'content-type': type }).end(text)
  }
const refuseVersion = (res: ServerResponse, told: Told): void =>
  sendJson(res, error(told.id, -32022, 'no', { supported: ['2026-07-28'] }), 400)

for (const [name, refuse] of [
  ['its error for an unknown version', refuseVersion],
  ['404 and "method not found"', (res, told) => sendJson(res, error(told.id, -32601, 'no'), 404)],
  ['400 and a page', plainly('text/html', '<p>no')],
  [
    'a missing header, without an id',
    (res) => sendJson(res, error(null, -32020, 'mcp-method is missing'), 400),
  ],
] as const satisfies readonly (readonly [string, (res: ServerResponse, told: Told) => void])[])
  await t.test(
    `a server that was legacy, is modern now and answers with ${name}: the same call is made`,
    async (t) => {
      const stage = await mcpStage(t)
      const server = await toolServer(t, [tool('read')])
      const up = await stage.register('up', server, { required_capability: 'up.use' })
      const [bot, eve] = [await stage.enroll('bot', ['up.use']), await stage.enroll('eve', ['up.use'])]
      for (const who of [bot, eve]) await stage.bind(who, up)
      t.match((await stage.callTool(bot, 'up.read')).json, { result: {} })
      server.act = newerAlone([tool('read')], echo, refuse)
      const before = called(server).length
      // One has a session there, the other has none.
      for (const who of [bot, eve])
        t.match((await stage.callTool(who, 'up.read', { n: 1 })).json, {
          result: { content: [{ text: /"name":"read"/ }] },
        })
      const isRun = ({ headers }: Told) => headers['mcp-protocol-version'] === '2026-07-28'
      t.equal(server.of('tools/call').slice(before).filter(isRun).length, 2, 'each ran once')
      t.match(await stage.refresh(up), { era: 'modern', protocol_version: '2026-07-28' })
      const rows = await stage.rows({ action: 'mcp_resource.updated', order: 'desc' })
      t.match(
        rows
          .filter(({ detail }) => detail.era !== undefined)
          .map(({ detail }) => [detail.era, detail.previous_era]),
        [['modern', 'legacy']],
      )
    },
  )

for (const [name, refuse] of [
  [
    '400 and a demand for a session',
    (res) => sendJson(res, error(null, -32000, 'Mcp-Session-Id is required'), 400),
  ],
  ['400 in plain text', plainly('text/plain', 'bad version')],
  [
    'an error for an unknown version',
    (res, told) => sendJson(res, error(told.id, -32022, 'no', { supported: ['2025-11-25'] }), 400),
  ],
] as const satisfies readonly (readonly [string, (res: ServerResponse, told: Told) => void])[])
  await t.test(
    `a server that was modern, is legacy now and answers with ${name}: the same call is made`,
    async (t) => {
      const stage = await mcpStage(t)
      const server = await toolServer(t, [])
      server.act = newerAlone([tool('read')])
      const up = await stage.register('up', server, { required_capability: 'up.use' })
      t.equal(up.era, 'modern')
      const bot = await stage.enroll('bot', ['up.use'])
      await stage.bind(bot, up)
      const plain = legacyWith([tool('read')])
      server.act = (res, told) =>
        told.headers['mcp-protocol-version'] === '2026-07-28' ? refuse(res, told) : plain(res, told)
      t.match((await stage.callTool(bot, 'up.read')).json, {
        result: { content: [{ text: /"name":"read"/ }] },
      })
      const ran = server.of('tools/call').filter(({ session }) => session !== undefined)
      t.equal(ran.length, 1)
      t.match(await stage.refresh(up), { era: 'legacy' })
    },
  )

await t.test(
  'an error of a server that speaks the era that it was found to speak is not sent twice',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [])
    const refuse: Act = plainly('text/plain', 'session trouble')
    server.act = newerAlone([tool('read')], refuse)
    const up = await stage.register('up', server, { required_capability: 'up.use' })
    const bot = await stage.enroll('bot', ['up.use'])
    await stage.bind(bot, up)
    t.match((await stage.callTool(bot, 'up.read')).json, { error: { code: -32003 } })
    t.equal(server.of('tools/call').length, 1)
  },
)

await t.test(
  'a tool whose output is no object is listed and called in both eras, each as its revision has it',
  async (t) => {
    const stage = await mcpStage(t)
    const outputSchema = { type: 'array', items: { type: 'string' } }
    const padding = 'lorem ipsum '.repeat(9_000)
    const tools = [
      tool('names', { outputSchema }),
      tool('large', { outputSchema: { ...outputSchema, description: padding } }),
      tool('plain', { outputSchema: { type: 'object' } }),
    ]
    let answer: Json = {}
    const server = await toolServer(t, tools, (res, told) => sendJson(res, result(told, answer)))
    const bot = await stage.enroll('bot', ['mcp.tools.call', 'mcp.tools.list'])
    await stage.bind(bot, await stage.register('up', server))
    for (const at of ['', '/up'] as const) {
      const schemas = async (modern: boolean) => {
        const { json } = await stage.rpc(bot, 'tools/list', { at, modern })
        const own = json.result.tools.filter(({ name }: Json) => name !== 'http.get')
        return own.map((one: Json) => one.outputSchema?.type)
      }
      t.same(await schemas(true), ['array', 'array', 'object'], 'the newest revision has them all')
      t.same(await schemas(false), [undefined, undefined, 'object'], 'the others have no such schema')
    }
    const called = async (modern: boolean) =>
      (await stage.callTool(bot, 'names', {}, { at: '/up', modern })).json.result
    const text = (said: string) => [{ type: 'text', text: said }]
    for (const [given, older] of [
      [{ content: text('a'), structuredContent: ['a'] }, { content: text('a') }],
      [{ content: [], structuredContent: ['a'] }, { content: text('["a"]') }],
      [{ structuredContent: 7 }, { content: text('7') }],
      [
        { content: text('a'), structuredContent: { a: 1 } },
        { content: text('a'), structuredContent: { a: 1 } },
      ],
      [{ content: text('a'), structuredContent: [padding] }, { content: text('a') }],
      [
        { content: [], structuredContent: ['b'.repeat(300_000)] },
        {
          content: text(
            'The tool gave 300004 bytes of structured content, too many to be written as text: use a client of 2026-07-28.',
          ),
        },
      ],
    ]) {
      answer = given ?? {}
      t.strictSame(await called(false), older)
      t.match(await called(true), given)
    }
  },
)
