import t from 'tap'
import { approverOf } from '../../../../db/ledger/authority/rule.ts'
import { reducesRequirements } from '../../../../proxy/admin/mcp/body.ts'
import { approvalStage, askedIn } from '../../../support/approvals/stage.ts'
import { type Json, testGateway } from '../../../support/gateway.ts'
import { tool, toolServer } from '../../../support/mcp/stage.ts'
import { as, operatorNamed } from '../../../support/operators.ts'

const PATH = '/v1/admin/mcp-resources'
const PRIVATE = { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } }
const RULE = ['approval', 'tool_approvals', 'approval_ttl_s', 'approval_wait_s']

t.test('a tool has its own rule, else that of its resource; a name of any object is no rule', (t) => {
  const rule = { approval: 'operator', tool_approvals: { read: null, pay: 'person' } } as const
  t.equal(approverOf(rule, 'read'), null)
  t.equal(approverOf(rule, 'pay'), 'person')
  t.equal(approverOf(rule, 'constructor'), 'operator')
  t.equal(approverOf({ ...rule, approval: null }, 'constructor'), null)
  t.end()
})

t.test('to ask for no approval any more, or of somebody else, lowers what is demanded', (t) => {
  const none = { required_capability: null, tool_capabilities: {} }
  const rule = (approval: 'operator' | 'person' | null, own: Json = {}) => ({
    ...none,
    approval,
    tool_approvals: own,
    ...{ min_proof: 'certificate' as const, tool_min_proof: {} },
  })
  for (const [before, after, lowers, name] of [
    [rule(null), rule('operator'), false, 'one is asked for where none was'],
    [rule('operator'), rule(null), true, 'none is any more'],
    [rule('operator'), rule('person'), true, 'of somebody else'],
    [rule('operator'), rule('operator', { read: null }), true, 'a tool is left out'],
    [rule(null), rule(null, { pay: 'operator' }), false, 'for one tool'],
    [rule(null, { pay: 'operator' }), rule('operator'), false, 'and then for all'],
  ] as const)
    t.equal(reducesRequirements(before, after), lowers, name)
  t.end()
})

await t.test(
  'the rule of a server is a field like others, and rows carry it where it asks for something',
  async (t) => {
    const upstream = await toolServer(t, [tool('read'), tool('pay')])
    const gateway = await testGateway(t, PRIVATE)
    const plain = await gateway.admin('POST', PATH, { name: 'plain', endpoint_url: upstream.url })
    t.strictSame(
      RULE.map((name) => plain.json[name]),
      [null, {}, 600, 0],
    )
    const { json } = await gateway.admin('POST', PATH, {
      name: 'files',
      endpoint_url: upstream.url,
      tool_approvals: { pay: 'operator' },
      approval_ttl_s: 3_600,
    })
    t.strictSame(json.tools.map((one: Json) => [one.name, one.approval]).toSorted(), [
      ['pay', 'operator'],
      ['read', null],
    ])
    const path = `${PATH}/${json.resource_id}`
    for (const [body, field] of [
      [{ approval: 'anybody' }, 'approval'],
      [{ tool_approvals: { pay: 'anybody' } }, 'tool_approvals'],
      [{ tool_approvals: [] }, 'tool_approvals'],
      [{ tool_approvals: { 'a b': null } }, 'tool_approvals'],
      [{ approval_ttl_s: 59 }, 'approval_ttl_s'],
      [{ approval_wait_s: 111 }, 'approval_wait_s'],
    ] as const) {
      const refused = await gateway.admin('PATCH', path, body)
      t.equal(refused.status, 422, JSON.stringify(body))
      t.equal(refused.json.detail.errors[0].field, field)
    }
    const changed = await gateway.admin('PATCH', path, { approval: 'person', approval_wait_s: 20 })
    t.strictSame(
      RULE.map((name) => changed.json[name]),
      ['person', { pay: 'operator' }, 3_600, 20],
    )
    const tools = as(gateway, await operatorNamed(gateway, 'tools', ['admin.read', 'admin.tools']))
    const lowered = await tools('PATCH', path, { approval: null })
    t.equal(lowered.json.detail.required_capability, 'admin.grant', 'who may not grant may not lower it')
    t.equal((await gateway.admin('PATCH', path, { approval: null, tool_approvals: null })).status, 200)

    const rows = (await gateway.rows()).filter(
      ({ action, status }) => action.startsWith('mcp_resource.') && status === 'success',
    )
    rows.sort((one, other) => one.seq - other.seq)
    const said = rows.map(({ detail }) => {
      const { fields, previous, name, ...own } = detail as Json
      return [name, ...RULE.map((member) => own[member]), fields?.approval, previous?.tool_approvals]
    })
    t.strictSame(said, [
      ['plain', undefined, undefined, undefined, undefined, undefined, undefined],
      ['plain', undefined, undefined, undefined, undefined, undefined, undefined],
      ['files', undefined, { pay: 'operator' }, 3_600, undefined, undefined, undefined],
      ['files', undefined, { pay: 'operator' }, 3_600, undefined, undefined, undefined],
      ['files', 'person', { pay: 'operator' }, 3_600, 20, 'person', undefined],
      ['files', undefined, undefined, 3_600, 20, null, [['pay', 'operator']]],
    ])
  },
)

await t.test('a rehearsal says which calls of today would have had to be approved', async (t) => {
  const { stage, bot, files, decide } = await approvalStage(t)
  for (const n of [1, 2, 3]) await stage.callTool(bot, 'files.read', { n })
  const id = askedIn(await stage.callTool(bot, 'files.pay', { n: 1 }))
  await decide(id, 'approve')
  await stage.callTool(bot, 'files.pay', { n: 1 })
  const rehearse = async (change: Json) =>
    (await stage.admin('POST', '/v1/admin/rehearsals', { changes: [{ resource: 'files', ...change }] })).json
  const all = await rehearse({ approval: 'operator' })
  t.match(all.totals, { newly_refused: 3, newly_allowed: 0, undecidable: 0 })
  const held = { days: 1, per_day: 3, most_per_day: 3 }
  t.match(all.newly_refused, [
    { tool: 'files.read', reason: 'approval_required', decisions: 3, newly_held: held },
  ])
  t.strictSame(all.newly_held, held, 'and how many a day in all')
  const none = await rehearse({ tool_approvals: null })
  t.match(none.totals, { newly_refused: 0, newly_allowed: 1, undecidable: 0 })
  t.notMatch(JSON.stringify(none), 'newly_held')
  t.match(none.newly_allowed, [{ tool: 'files.pay', reason: 'approval_required' }])
  t.ok(files)
})
