import t from 'tap'
import type { UpstreamCall } from '../../../../proxy/mcp/upstream/client.ts'
import {
  error,
  legacy,
  type RawMcp,
  rawMcp,
  resourceAt,
  result,
  sendJson,
  sse,
  upstreamFor,
} from '../../../support/mcp/raw-upstream.ts'
import { all, callOf, failure, messagesOf, values } from '../../../support/mcp/upstream-calls.ts'
import { TOOL_CALL } from '../../../support/permit.ts'

const ALICE = { principalId: 'acme::alice', sessionId: null }
const BOB = { principalId: 'acme::bob', sessionId: null }

const legacyCall = ({ url }: RawMcp, fields: Partial<UpstreamCall> = {}): UpstreamCall =>
  callOf(url, { resource: resourceAt(url, { era: 'legacy' }), ...fields })

await t.test(
  '2025-11-25 a session is opened with a handshake, and then named in every request',
  async (t) => {
    const raw = await rawMcp(t, legacy())
    const upstream = upstreamFor(t)
    const client = { capabilities: { roots: {} }, clientInfo: { name: 'claude', version: '2' } }
    await all(await upstream.call(legacyCall(raw, { client, headers: { 'mcp-name': 'echo' } })))
    const [initialize, initialized, call] = raw.told
    t.match(initialize?.message, {
      method: 'initialize',
      params: { protocolVersion: '2025-11-25', capabilities: { roots: {} }, clientInfo: { name: 'claude' } },
    })
    t.notHas(initialize?.headers, { 'mcp-session-id': '' })
    t.notHas(initialize?.headers, { 'mcp-protocol-version': '' })
    t.same(initialized?.message, { jsonrpc: '2.0', method: 'notifications/initialized' })
    t.match(call?.message, { method: 'tools/call', params: { name: 'echo' } })
    for (const told of [initialized, call]) {
      t.match(told?.headers, { 'mcp-session-id': 's1', 'mcp-protocol-version': '2025-11-25' })
    }
    for (const name of ['mcp-method', 'mcp-name']) t.notHas(call?.headers, { [name]: '' })
  },
)

await t.test('2025-11-25 each revision that has sessions is accepted, and named; no other is', async (t) => {
  for (const protocolVersion of ['2025-06-18', '2025-03-26', '2024-11-05']) {
    const raw = await rawMcp(t, legacy({ protocolVersion }))
    await all(await upstreamFor(t).call(legacyCall(raw)))
    t.equal(raw.of('tools/call')[0]?.headers['mcp-protocol-version'], protocolVersion)
  }
  for (const protocolVersion of ['2026-07-28', '1.0', '']) {
    const raw = await rawMcp(t, legacy({ protocolVersion }))
    const named =
      protocolVersion === '2026-07-28' ? /it names 2026-07-28\): update it to one that / : /knows: update/
    await t.rejects(upstreamFor(t).call(legacyCall(raw)), failure('failed', { message: named }))
    t.equal(raw.of('tools/call').length, 0)
  }
})

await t.test('a handshake that is answered with an error is told by its cause and its cure', async (t) => {
  const secret = 'sk-of-the-server'
  const cases = [
    [
      -32602,
      { supported: ['2023-01-01', secret], requested: '2025-11-25' },
      /it names 2023-01-01\): update it/,
    ],
    [-32022, null, /knows: update it to one that speaks 2026-07-28, 2025-11-25/],
    [-32601, null, /not MCP: correct endpoint_url/],
    [-32602, null, /it does not take protocol revision 2025-11-25/],
    [-32603, null, /look into the log of the server/],
    [-1, null, /answered with error -1$/],
  ] as const
  for (const [code, data, message] of cases) {
    const raw = await rawMcp(t, (res, told) => {
      const { id } = told
      sendJson(res, { jsonrpc: '2.0', id, error: { code, message: secret, ...(data && { data }) } })
    })
    const failed = await upstreamFor(t)
      .call(legacyCall(raw))
      .then(
        () => null,
        (thrown: Error) => thrown,
      )
    t.match(failed, failure('failed', { message }))
    t.notMatch(failed?.message, secret)
  }
})

await t.test('a server without session ids is served without', async (t) => {
  const raw = await rawMcp(t, legacy({ sessionId: () => null }))
  const upstream = upstreamFor(t)
  await all(await upstream.call(legacyCall(raw)))
  await all(await upstream.call(legacyCall(raw)))
  t.equal(raw.of('initialize').length, 1)
  for (const { headers } of raw.told) t.notHas(headers, { 'mcp-session-id': '' })
})

await t.test('a session id that cannot stand in a header is refused', async (t) => {
  for (const id of ['with space', '\u00e9', 'x'.repeat(2_000)]) {
    const raw = await rawMcp(t, legacy({ sessionId: () => id }))
    await t.rejects(upstreamFor(t).call(legacyCall(raw)), failure('failed'))
  }
})

await t.test('a session is opened once, however many calls wait for it', async (t) => {
  const raw = await rawMcp(t, legacy())
  const upstream = upstreamFor(t)
  const answers = await Promise.all(Array.from({ length: 20 }, () => upstream.call(legacyCall(raw))))
  await Promise.all(answers.map(all))
  t.equal(raw.of('initialize').length, 1)
  t.same([...new Set(raw.of('tools/call').map(({ session }) => session))], ['s1'])
})

await t.test('threat 6 two owners never share a session', async (t) => {
  const raw = await rawMcp(t, legacy({ act: (res, told) => sendJson(res, result(told)) }))
  const upstream = upstreamFor(t)
  const owners = [
    ALICE,
    BOB,
    { ...ALICE, sessionId: 'a' },
    { ...ALICE, sessionId: 'b' },
    { ...BOB, sessionId: 'a' },
    { principalId: 'acme::alice","a', sessionId: null },
    { principalId: 'acme::alice a', sessionId: null },
    { ...ALICE, sessionId: 'a null' },
  ]
  for (let round = 0; round < 2; round += 1) {
    const calls = owners.map((owner, at) => legacyCall(raw, { owner, params: `{"owner":${at}}` }))
    await Promise.all((await Promise.all(calls.map((call) => upstream.call(call)))).map(all))
  }
  t.equal(raw.of('initialize').length, owners.length)
  const seen = raw
    .of('tools/call')
    .map(({ message, session }) => `${JSON.stringify(message.params)} ${session}`)
  t.equal(new Set(seen).size, owners.length, 'each owner has one session')
  t.equal(new Set(raw.of('tools/call').map(({ session }) => session)).size, owners.length, 'of its own')
})

await t.test('threat 6 a session that the upstream hands out twice is given to nobody else', async (t) => {
  const raw = await rawMcp(t, legacy({ sessionId: () => 'same' }))
  const upstream = upstreamFor(t)
  await all(await upstream.call(legacyCall(raw)))
  await t.rejects(upstream.call(legacyCall(raw, { owner: BOB })), failure('failed'))
  t.equal(raw.of('tools/call').length, 1)
  t.equal(raw.of('DELETE').length, 0, 'and it is not ended, for it is another one’s')
  await all(await upstream.call(legacyCall(raw)))
  t.equal(raw.of('tools/call').length, 2, 'whose it is, still has it')
})

await t.test(
  '2025-11-25 a session that is gone is opened anew, and the request sent once more',
  async (t) => {
    const gone = {
      'the status of the specification': [404, error(null, -32001, 'Session not found')],
      'that status and nothing else': [404, ''],
      'that status and our id': [404, 'ours'],
      'words in JSON': [400, error(null, -32000, 'Bad Request: No valid session ID provided')],
      'words after a restart': [400, error(null, -32000, 'Bad Request: Server not initialized')],
      'plain words': [400, 'Invalid or missing session ID'],
    } as const
    for (const [name, [status, body]] of Object.entries(gone)) {
      await t.test(name, async (t) => {
        const raw = await rawMcp(
          t,
          legacy({
            act: (res, told) => {
              if (told.session !== 's1') return sendJson(res, result(told, { session: told.session }))
              sendJson(res, body === 'ours' ? error(told.id, -32001, 'gone') : body, status)
            },
          }),
        )
        const upstream = upstreamFor(t)
        const answer = await upstream.call(legacyCall(raw))
        t.match(await values(answer), [{ id: answer.requestId, result: { session: 's2' } }])
        t.equal(raw.of('initialize').length, 2)
        t.equal(raw.of('tools/call').length, 2)
      })
    }
  },
)

await t.test('2025-11-25 once, and no more', async (t) => {
  const act = legacy({ act: (res) => sendJson(res, '', 404) })
  const raw = await rawMcp(t, act)
  await t.rejects(upstreamFor(t).call(legacyCall(raw)), failure('failed', { status: 404 }))
  t.equal(raw.of('tools/call').length, 2)
})

await t.test('what may have acted is never sent twice', async (t) => {
  const cases: [number, (id: unknown) => unknown, boolean][] = [
    [400, (id) => error(id, -32000, 'Bad Request: No valid session ID provided'), true],
    [400, () => error(null, -32000, 'no such tool'), true],
    [404, (id) => ({ jsonrpc: '2.0', id, result: {} }), true],
    [500, () => 'the session store is down', false],
    [502, () => error(null, -32000, 'Session not found'), true],
  ]
  for (const [status, body, answered] of cases) {
    const raw = await rawMcp(t, legacy({ act: (res, { id }) => sendJson(res, body(id), status) }))
    const upstream = upstreamFor(t)
    if (answered) t.equal((await all(await upstream.call(legacyCall(raw)))).length, 1)
    else await t.rejects(upstream.call(legacyCall(raw)), failure('failed', { status }))
    t.equal(raw.of('tools/call').length, 1, `${status}`)
    t.equal(raw.of('initialize').length, 1, `${status}`)
  }
})

await t.test('an answer that says the session is unknown makes the next call begin a new one', async (t) => {
  const act = legacy({
    act: (res, told) =>
      told.session === 's1'
        ? sendJson(res, error(told.id, -32000, 'Bad Request: No valid session ID provided'), 400)
        : sendJson(res, result(told)),
  })
  const raw = await rawMcp(t, act)
  const upstream = upstreamFor(t)
  t.match(await values(await upstream.call(legacyCall(raw))), [{ error: { code: -32000 } }])
  t.match(await values(await upstream.call(legacyCall(raw))), [{ result: {} }])
  t.same(
    raw.of('tools/call').map(({ session }) => session),
    ['s1', 's2'],
  )
})

await t.test('a server without session ids that answers 404 is not asked again', async (t) => {
  const raw = await rawMcp(t, legacy({ sessionId: () => null, act: (res) => sendJson(res, '', 404) }))
  await t.rejects(upstreamFor(t).call(legacyCall(raw)), failure('failed', { status: 404 }))
  t.equal(raw.of('tools/call').length, 1)
})

await t.test('a handshake that fails fails the call, and the next one tries again', async (t) => {
  const raw = await rawMcp(t, (res, told) => sendJson(res, error(told.id, -32603, 'not today')))
  const upstream = upstreamFor(t)
  await t.rejects(upstream.call(legacyCall(raw)), failure('failed'))
  raw.act = legacy()
  await all(await upstream.call(legacyCall(raw)))
  t.equal(raw.of('tools/call').length, 1)
})

await t.test('a session whose handshake is not taken to its end is ended', async (t) => {
  const serve = legacy()
  const raw = await rawMcp(t, (res, told) =>
    told.rpc === 'notifications/initialized' ? sendJson(res, '', 500) : serve(res, told),
  )
  await t.rejects(upstreamFor(t).call(legacyCall(raw)), failure('failed'))
  t.match(raw.of('DELETE'), [{ session: 's1' }])
})

await t.test(
  '§2.2 messages of the upstream come on the stream, and the caller’s responses go to its session',
  async (t) => {
    const asked = Promise.withResolvers<unknown>()
    const raw = await rawMcp(
      t,
      legacy({
        act: async (res, told) => {
          const event = sse(res)
          event({ jsonrpc: '2.0', id: 'q1', method: 'elicitation/create', params: {} })
          event(result(told, { heard: await asked.promise }))
          res.end()
        },
      }),
    )
    const serve = raw.act
    raw.act = (res, told) => {
      if (told.message.result === undefined) return serve(res, told)
      asked.resolve([told.message, told.session])
      res.writeHead(202).end()
    }
    const upstream = upstreamFor(t)
    const call = legacyCall(raw)
    const answer = await upstream.call(call)
    for await (const { value } of messagesOf(answer)) {
      if (value.method === undefined) {
        t.match(value.result, { heard: [{ id: 'q1', result: { action: 'accept' } }, 's1'] })
        continue
      }
      const response = '{"jsonrpc":"2.0","id":"q1","result":{"action":"accept"}}'
      const { resource } = call
      await t.rejects(
        upstream.respond(TOOL_CALL, resource, BOB, response),
        failure('failed'),
        'not to another one’s',
      )
      await upstream.respond(TOOL_CALL, resource, ALICE, response)
    }
  },
)
