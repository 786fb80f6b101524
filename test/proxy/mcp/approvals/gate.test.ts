import t from 'tap'
import { approvalStage, askedIn } from '../../../support/approvals/stage.ts'
import type { Json } from '../../../support/gateway.ts'
import { called, tool } from '../../../support/mcp/stage.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

await t.test('a call waits for an approval of exactly itself, and passes once', async (t) => {
  const { stage, server, bot, decide, approver } = await approvalStage(t)
  const pay = (args: Json = { to: 'bob', amount: 5 }) => stage.callTool(bot, 'files.pay', args)

  t.match((await stage.callTool(bot, 'files.read')).json.result, { content: [{}] }, 'no rule, no question')
  const asked = await pay()
  t.equal(asked.json.error.code, -31007)
  t.equal(asked.json.error.data.reason, 'approval_required')
  const id = askedIn(asked)
  t.match(id, /^apr_[0-9a-f]{24}$/)
  t.match(asked.json.error.data.url, new RegExp(`/proxy/approvals/${id}$`))
  t.match(asked.json.error.message, /send the identical call again/)
  t.equal(askedIn(await pay()), id, 'the same call again has the same id while it is open')
  t.equal(askedIn(await pay({ amount: 5, to: 'bob' })), id, 'in whatever order its members are')

  const shown = (await approver('GET', `/v1/admin/approvals/${id}`)).json
  t.match(shown, {
    status: 'open',
    principal: 'acme::bot',
    tool: 'pay',
    arguments: '{"amount":5,"to":"bob"}',
  })
  t.equal(shown.definition.name, 'pay')
  const other = askedIn(await pay({ to: 'bob', amount: 6 }))
  t.not(other, id, 'one other byte is another call')
  t.equal((await decide(id, 'approve')).status, 204)
  t.equal(
    (await approver('GET', `/v1/admin/approvals/${id}`)).json.arguments,
    null,
    'then they are forgotten',
  )
  t.equal(called(server).length, 1, 'nothing was called but what needs no approval')

  t.equal(askedIn(await pay({ to: 'bob', amount: 6 })), other, 'the other one is not approved by this')
  t.match((await pay()).json.result, { content: [{}] })
  t.equal((await approver('GET', `/v1/admin/approvals/${id}`)).json.status, 'used')
  t.not(askedIn(await pay()), id, 'and asks again')
  t.equal(called(server).length, 2)

  t.equal((await decide(id, 'decline')).status, 409, 'it is decided')
  t.equal((await decide(other, 'decline', 'Not this month.')).status, 204)
  const declined = await pay({ to: 'bob', amount: 6 })
  t.match(declined.json.error.message, /said: Not this month\./)
  t.equal(declined.json.error.data.declined, 'Not this month.')
  t.equal(askedIn(declined), other, 'and is not asked for again until its time is over')

  const rows = (await stage.rows({ limit: 1000, order: 'asc' })).filter(({ tool: of, action }) =>
    [of === 'files.pay', action.startsWith('approval.')].some(Boolean),
  )
  const said = rows.map(({ action, status, principal_id: who, detail }) => {
    const { authority, approval, reason } = detail as Json
    return [action, status, who, authority?.approval ?? approval ?? null, reason ?? null]
  })
  t.same(
    said.filter(
      ([, status, , approval]) => status === 'allowed' || (approval === id && status === 'success'),
    ),
    [
      ['approval.requested', 'success', 'acme::bot', id, null],
      ['approval.approved', 'success', 'acme::operator::ann', id, null],
      ['mcp_tools_call', 'allowed', 'acme::bot', id, null],
    ],
  )
  const use = rows.find(({ status }) => status === 'allowed')?.detail as Json
  const request = rows.find(({ action }) => action === 'approval.requested')?.detail as Json
  t.equal(use.authority.call_digest, request.call_digest)
  t.match(request, { subject: 'acme::bot', tool: 'files.pay', arguments_bytes: 23 })
})

await t.test('50 retries at once make one dispatch, and 50 first calls one request', async (t) => {
  const { stage, server, bot, decide, approver } = await approvalStage(t)
  const many = () => Promise.all(Array.from({ length: 50 }, () => stage.callTool(bot, 'files.pay', { n: 1 })))
  const ids = new Set((await many()).map(askedIn))
  t.equal(ids.size, 1, 'all have the same id')
  const [id = ''] = ids
  await decide(id, 'approve')
  const answers = await many()
  t.equal(answers.filter(({ json }) => json.result).length, 1)
  const refused = new Set(answers.filter(({ json }) => json.error).map(askedIn))
  t.equal(refused.size, 1, 'the others ask again, once')
  t.notOk(refused.has(id))
  t.equal(called(server).length, 1)
  const { approvals } = (await approver('GET', '/v1/admin/approvals')).json
  t.equal(approvals.length, 2)
})

await t.test('another principal, definition, rule or server is another call', async (t) => {
  const { stage, server, files, bot, decide } = await approvalStage(t)
  const eve = await stage.enroll('eve', ['files.use'])
  await stage.bind(eve, files)
  const pay = (who = bot) => stage.callTool(who, 'files.pay', { n: 1 })
  const first = askedIn(await pay())
  await decide(first, 'approve')
  t.not(askedIn(await pay(eve)), first, 'of somebody else')
  const path = `/v1/admin/mcp-resources/${files.resource_id}`
  t.equal((await stage.admin('PATCH', path, { approval_ttl_s: 900 })).status, 200)
  const second = askedIn(await pay())
  t.not(second, first, 'the server has changed since')
  await decide(second, 'approve')
  t.equal((await stage.admin('PATCH', path, { tool_approvals: {} })).status, 200)
  t.ok((await pay()).json.result, 'without a rule nothing is asked for')
  t.equal(called(server).length, 1)
  t.ok(tool('pay'))
})

await t.test('nobody approves a call of its own, and the secret approves nothing', async (t) => {
  const { stage, bot, decide } = await approvalStage(t)
  const id = askedIn(await stage.callTool(bot, 'files.pay', {}))
  const path = `/v1/admin/approvals/${id}/approve`
  t.equal((await stage.admin('POST', path, {})).json.reason, 'own_call')
  const asked = await stage.admin('GET', `/v1/admin/agents/${bot.id}/what-if?tool=files.pay`)
  t.match(asked.text, 'approval_required', 'what-if says so')
  const reader = as(stage, await operatorNamed(stage, 'ray', ['admin.read', 'admin.grant']))
  t.equal((await reader('POST', path, {})).json.detail.required_capability, 'admin.approve')
  t.equal((await decide('apr_0', 'approve')).status, 404)
  t.equal((await decide(id, 'decline', 'a\u202eb')).status, 422, 'a reason hides nothing')
  t.equal((await decide(id, 'approve', 'Fine.')).status, 204)
})

await t.test('at most 16 are open of one principal, and arguments are at most 64 KiB', async (t) => {
  const { stage, bot } = await approvalStage(t)
  const pay = (n: number) => stage.callTool(bot, 'files.pay', { n })
  const ids = new Set<string>()
  for (let n = 0; n < 16; n += 1) ids.add(askedIn(await pay(n)))
  t.equal(ids.size, 16)
  const beyond = await pay(16)
  t.equal(beyond.json.error.code, -31007)
  t.equal(askedIn(beyond), undefined, 'the refusal has no id')
  t.match(beyond.json.error.message, /too many calls wait/)
  const long = await stage.callTool(bot, 'files.pay', { text: 'x'.repeat(65_536) })
  t.equal(long.json.error.code, -32602)
  const longer = await stage.callTool(bot, 'files.pay', { text: 'x'.repeat(4_000_000) })
  t.match(longer.json.error.message, /nobody could read them/)
})

await t.test('a call that is held passes as soon as it is approved, and else is refused', async (t) => {
  const { stage, server, bot, decide, approver } = await approvalStage(t, { approval_wait_s: 100 })
  const held = stage.callTool(bot, 'files.pay', { n: 1 })
  const open = async (): Promise<string> => {
    const { approvals } = (await approver('GET', '/v1/admin/approvals?status=open')).json
    return approvals[0]?.id ?? open()
  }
  const id = await open()
  t.equal(called(server).length, 0)
  await decide(id, 'approve')
  t.ok((await held).json.result)
  const again = stage.callTool(bot, 'files.pay', { n: 1 })
  await decide(await open(), 'decline', 'Once is enough.')
  t.match((await again).json.error.message, /Once is enough/)
  t.equal(called(server).length, 1)
})
