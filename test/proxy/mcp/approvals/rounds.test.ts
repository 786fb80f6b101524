import t from 'tap'
import { MODERN_VERSION } from '../../../../proxy/mcp/protocol/versions.ts'
import { approverOn, askedIn } from '../../../support/approvals/stage.ts'
import type { Json } from '../../../support/gateway.ts'
import { type Act, rawMcp, result, sendJson } from '../../../support/mcp/raw-upstream.ts'
import { called, mcpStage, tool } from '../../../support/mcp/stage.ts'

/** Asks its caller once, and then answers. */
const asking: Act = (res, told) => {
  const params = told.message.params as Json
  if (told.rpc === 'server/discover') {
    const found = { resultType: 'complete', supportedVersions: [MODERN_VERSION], capabilities: { tools: {} } }
    return sendJson(res, result(told, found))
  }
  if (told.rpc === 'tools/list')
    return sendJson(res, result(told, { resultType: 'complete', tools: [tool('pay')] }))
  const inputRequests = { sure: { method: 'elicitation/create', params: {} } }
  const done = { resultType: 'complete', content: [{ type: 'text', text: 'paid' }] }
  const first = { resultType: 'input_required', inputRequests, requestState: 'step-1' }
  return sendJson(res, result(told, params.requestState === 'step-1' ? done : first))
}

await t.test(
  'the next round of an approved call goes by the same approval, and no other call does',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await rawMcp(t, asking)
    const bank = await stage.register('bank', server, { approval: 'operator' })
    const [bot, eve] = [await stage.enroll('bot', ['bank.use']), await stage.enroll('eve', ['bank.use'])]
    for (const who of [bot, eve]) await stage.bind(who, bank)
    const decide = await approverOn(stage)
    const pay = (who: typeof bot, n: number, params: Json = {}) =>
      stage.callTool(who, 'bank.pay', { n }, { modern: true, params })
    const id = askedIn(await pay(bot, 1))
    await decide(id, 'approve')
    const first = (await pay(bot, 1)).json.result
    t.equal(first.resultType, 'input_required', 'the server asks')
    const { requestState } = first
    t.notMatch(requestState, /^step-1/)
    const answers = { requestState, inputResponses: { sure: { action: 'accept' } } }
    const before = called(server).length
    t.equal((await pay(bot, 2, answers)).json.error.code, -32602, 'other arguments are another call')
    t.equal((await pay(eve, 1, answers)).json.error.code, -32602, 'and so is one of somebody else')
    const another = requestState.replace(
      /apr_(.)/,
      (_: string, first: string) => `apr_${first === '0' ? '1' : '0'}`,
    )
    const forged = { ...answers, requestState: another }
    t.equal((await pay(bot, 1, forged)).json.error.code, -32602)
    t.equal(called(server).length, before, 'nothing of it went to the server')
    t.match((await pay(bot, 1, answers)).json.result, { content: [{ text: 'paid' }] })
    t.match(called(server).at(-1), { requestState: 'step-1', inputResponses: { sure: { action: 'accept' } } })
    const rows = await stage.rows({ action: 'mcp_tools_call', status: 'allowed', order: 'asc' })
    t.same(
      rows.map(({ detail }) => [(detail as Json).authority.approval, (detail as Json).authority.continued]),
      [
        [id, undefined],
        [id, true],
      ],
    )
    t.not(askedIn(await pay(bot, 1)), id, 'without the state it is a new call')
  },
)
