import t from 'tap'
import type { Json } from '../../../support/gateway.ts'
import { filesStage, mcpStage, type RpcOptions, tool, toolServer } from '../../../support/mcp/stage.ts'

const PATH = '/v1/admin/mcp-resources'

await t.test(
  'docs/ledger.md#authority: a decision row names the resource that it reached, its revision, the binding and the pin, refused or not',
  async (t) => {
    const { stage, files, bot } = await filesStage(t, ['files.use'])
    const path = `${PATH}/${files.resource_id}`
    /** The row of a call: status and reason, tool, and what it reached. */
    const row = async (method: string, options: RpcOptions = {}) => {
      await stage.rpc(bot, method, options)
      const wanted = `mcp_${method.replaceAll('/', '_')}`
      const made = (await stage.rows()).findLast(
        ({ action, status }) => action === wanted && ['allowed', 'denied'].includes(status),
      )
      const { reason, resource: name, authority } = (made?.detail ?? {}) as Json
      const { demanded, resource, binding, pin } = authority
      return [made?.status, reason, made?.tool, name, demanded, resource?.revision, binding, pin]
    }
    const call = (name: string, at?: string) =>
      row('tools/call', { params: { name, arguments: {} }, ...(at !== undefined && { at }) })
    const none = undefined
    const [read, write] = files.tools.map(({ digest }: Json) => digest)
    const use = ['files.use']

    t.strictSame(await call('none.read'), [
      ...['denied', 'mcp_tool_unknown', 'none.read', none, []],
      ...[none, none, none],
    ])
    t.strictSame(await call('files'), [
      ...['denied', 'mcp_tool_unknown', 'files.files', 'files', use],
      ...[2, none, none],
    ])
    t.strictSame(await call('files.gone\u0007'), [
      ...['denied', 'mcp_tool_unknown', 'files.gone\ufffd', 'files', use],
      ...[2, none, none],
    ])
    t.strictSame(await call('files.read'), [
      ...['denied', 'mcp_not_bound', 'files.read', 'files', use],
      ...[2, none, read],
    ])
    t.strictSame(await call('read', '/files'), [
      ...['denied', 'mcp_not_bound', 'files.read', 'files', []],
      ...[2, none, none],
    ])
    t.strictSame(await call('x', '/none'), [
      ...['denied', 'mcp_not_bound', 'x', none, []],
      ...[none, none, none],
    ])
    t.strictSame(await row('prompts/get', { params: { name: 'files.p' } }), [
      ...['denied', 'mcp_not_bound', null, 'files', ['mcp.prompts.get']],
      ...[2, none, none],
    ])
    const { binding_id: binding } = await stage.bind(bot, files)
    t.strictSame(await call('files.write'), [
      ...['denied', 'capability_missing', 'files.write', 'files', ['files.write']],
      ...[2, binding, write],
    ])
    const allowed = ['allowed', none, 'files.read', 'files', use, 2, binding, read]
    t.strictSame(await call('files.read'), allowed)
    t.strictSame(await call('read', '/files'), allowed)
    t.strictSame(await row('tools/list', { at: '/files' }), [
      ...['denied', 'capability_missing', null, 'files', ['mcp.tools.list']],
      ...[2, binding, none],
    ])
    t.strictSame(await row('tools/list'), [
      ...['denied', 'capability_missing', null, none, ['mcp.tools.list']],
      ...[none, none, none],
    ])
    await stage.admin('PATCH', path, { enabled: false })
    t.strictSame(await call('files.read'), [
      ...['denied', 'mcp_tool_unknown', 'files.read', 'files', use],
      ...[3, binding, read],
    ])
    t.strictSame(await call('read', '/files'), [
      ...['denied', 'mcp_not_bound', 'files.read', 'files', []],
      ...[3, binding, none],
    ])
  },
)

await t.test(
  'docs/ledger.md#authority: the row of a quarantined tool names the resource, and no pin',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read')])
    const files = await stage.register('files', server)
    const bot = await stage.enroll('bot', ['llm.chat'])
    await stage.bind(bot, files)
    const tools = [tool('read', { description: 'Other.' })]
    const other = await toolServer(t, tools)
    await stage.admin('PATCH', `${PATH}/${files.resource_id}`, { endpoint_url: other.url })
    t.equal((await stage.callTool(bot, 'files.read')).json.error.code, -32006)
    const row = (await stage.rows({ status: 'denied' })).at(-1)
    t.equal(row?.tool, 'files.read')
    t.match(row?.detail, {
      reason: 'mcp_tool_quarantined',
      authority: { demanded: [], resource: { revision: 4 } },
    })
    t.strictSame((row?.detail.authority as Json)?.pin, undefined)
  },
)

await t.test('a refusal of form is an invalid row, and no decision about authority', async (t) => {
  const { stage, files, bot } = await filesStage(t, ['files.use', 'mcp.resources.read'])
  await stage.bind(bot, files)
  const strange = { params: { name: 7 } }
  await stage.rpc(bot, 'tools/call', strange)
  await stage.rpc(bot, 'no/such')
  await stage.rpc(bot, 'tools/list', { modern: true, headers: { 'mcp-method': 'tools/call' } })
  await stage.rpc(bot, 'tools/list', { headers: { 'mcp-protocol-version': '1999-01-01' } })
  await stage.rpc(bot, 'tools/call', { ...strange, at: '/files' })
  const rows = (await stage.rows()).filter(({ action }) => /^mcp_[a-z_]+$/.test(action))
  t.same(
    rows.map(({ status, detail }) => [status, detail.reason]),
    [
      ['invalid', 'mcp_params_invalid'],
      ['invalid', 'mcp_method_unknown'],
      ['invalid', 'mcp_header_mismatch'],
      ['invalid', 'mcp_version_unsupported'],
      ['invalid', 'mcp_params_invalid'],
    ],
  )
})
