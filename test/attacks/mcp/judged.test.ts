import t from 'tap'
import { MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import type { Json } from '../../support/gateway.ts'
import { type Act, error, legacy, rawMcp, result, sendJson } from '../../support/mcp/raw-upstream.ts'
import { called, mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const JSON_TYPE = { 'content-type': 'application/json' }

await t.test(
  'threat 5: a number that two readers take for two is neither judged nor dispatched',
  async (t) => {
    const stage = await mcpStage(t)
    const amount = { type: 'integer', maximum: 9_007_199_254_740_992 }
    const inputSchema = { type: 'object', properties: { amount, rate: { type: 'number' } } }
    const server = await toolServer(t, [tool('pay', { inputSchema })])
    const bank = await stage.register('bank', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, bank)
    const pay = async (args: string) => {
      const params = `{"name":"bank.pay","arguments":${args}}`
      const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":${params}}`
      return (await stage.call(bot, 'POST', '/v1/mcp', { headers: JSON_TYPE, body })).json
    }
    for (const args of [
      '{"amount":9007199254740993}',
      '{"amount":9007199254740992.7}',
      '{"amount":-9007199254740993}',
      '{"other":[{"deep":123456789012345678901}]}',
      '{"rate":1e400}',
      '{"rate":1e22}',
    ]) {
      t.equal((await pay(args)).error?.code, -32602, args)
    }
    t.same(called(server), [], 'an exact reader would have paid more than the schema allows')
    t.ok((await pay('{"amount":9007199254740991,"rate":0.1}')).result)
  },
)

await t.test('threat 5: names that are written with escapes go out as they were judged', async (t) => {
  const stage = await mcpStage(t)
  const act: Act = (res, told) => sendJson(res, result(told, { completion: { values: [] } }))
  const server = await rawMcp(t, legacy({ act }))
  const docs = await stage.register('docs', server)
  const bot = await stage.enroll('bot', ['mcp.prompts.get'])
  await stage.bind(bot, docs)
  const ref = '{"t\\u0079pe":"ref/prompt","n\\u0061me":"p","t\\u0069tle":"P","x\\u0031":1}'
  const params = `{"ref":${ref},"argument":{"name":"a","v\\u0061lue":""},"context":{"arguments":{"\\u0061":1.50}}}`
  const body = `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":${params}}`
  const { json } = await stage.call(bot, 'POST', '/v1/mcp/docs', { headers: JSON_TYPE, body })
  t.ok(json.result)
  const [sent] = server.of('completion/complete')
  t.notMatch(sent?.body.toString(), /\\u/)
  t.same(
    sent?.message.params,
    {
      ref: { type: 'ref/prompt', name: 'p', title: 'P' },
      argument: { name: 'a', value: '' },
      context: { arguments: { a: 1.5 } },
    },
    'but for what no ref has',
  )
})

await t.test(
  'threat 6: a state that is no text cannot be bound to a caller, so none is given or taken',
  async (t) => {
    const stage = await mcpStage(t)
    const given: unknown[] = []
    const server = await rawMcp(t, (res, told) => {
      const capabilities = { tools: {} }
      if (told.rpc === 'server/discover')
        sendJson(
          res,
          result(told, { resultType: 'complete', supportedVersions: [MODERN_VERSION], capabilities }),
        )
      else if (told.rpc === 'tools/list')
        sendJson(res, result(told, { resultType: 'complete', tools: [tool('book')] }))
      else
        sendJson(
          res,
          result(told, { resultType: 'input_required', inputRequests: {}, requestState: given[0] }),
        )
    })
    const trip = await stage.register('trip', server)
    const bot = await stage.enroll('bot', ['mcp.tools.call'])
    await stage.bind(bot, trip)
    const book = async (params: Json = {}) =>
      (await stage.callTool(bot, 'trip.book', {}, { modern: true, params })).json
    for (const requestState of [['step-1'], { step: 1 }, 1, true, '']) {
      const before = called(server).length
      t.equal((await book({ requestState })).error?.code, -32602, JSON.stringify(requestState))
      t.equal(called(server).length, before)
    }
    for (const state of [['step-1'], { step: 1 }, 1, true]) {
      given[0] = state
      t.equal((await book()).error?.code, -32003, JSON.stringify(state))
    }
    for (const none of [undefined, null]) {
      given[0] = none
      t.match((await book({ requestState: null })).result, { resultType: 'input_required' })
    }
    given[0] = ''
    const { requestState } = (await book()).result
    t.ok((await book({ requestState })).result, 'an empty one is one all the same')
  },
)

await t.test('docs/ledger.md an upstream cannot empty the row of its own failure', async (t) => {
  const stage = await mcpStage(t)
  const server = await toolServer(t, [tool('go')], (res, told) => {
    sendJson(res, error(told.id, 1e300, 'no row can hold this code'))
  })
  const resource = await stage.register('go', server)
  const bot = await stage.enroll('bot', ['mcp.tools.call'])
  await stage.bind(bot, resource)
  t.match((await stage.callTool(bot, 'go')).json.error, { code: 1e300 })
  const rows = await eventually(
    () => stage.rows({ action: 'mcp_tools_call', status: 'error' }),
    (found) => found.length === 1,
  )
  t.match(rows, [{ provider: 'go', detail: { upstream_status: 200, ending: 'complete' } }])
})
