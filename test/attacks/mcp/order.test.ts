import t from 'tap'
import { agentOf, type Identity } from '../../support/gateway.ts'
import { mcpStage, request, tool, toolServer } from '../../support/mcp/stage.ts'

const CALLERS = 8
const ROUNDS = 6

// That each row follows from the rows before it the gateway of the test looks at when it ends.
await t.test(
  'docs/ledger.md#authority: no decision, granted or refused, stands where its binding or its resource was another one',
  async (t) => {
    const stage = await mcpStage(t)
    const server = await toolServer(t, [tool('read')])
    const files = await stage.register('files', server)
    const path = `/v1/admin/mcp-resources/${files.resource_id}`
    const callers = await Promise.all(
      Array.from({ length: CALLERS }, (_, index) => stage.enroll(`bot${index}`, ['llm.chat'])),
    )
    let going = true
    let calls = 0
    const asked = request('tools/call', { params: { name: 'files.read', arguments: {} } })
    const call = async (who: Identity): Promise<void> => {
      const agent = agentOf(stage.ca, who, true)
      while (going) {
        await stage.call(who, 'POST', '/v1/mcp', { ...asked, agent })
        calls += 1
      }
      agent.destroy()
    }
    const load = callers.map(call)
    // A principal's refusals of one kind are rows of their own up to the sixtieth in a minute.
    const busy = async (until: number): Promise<void> => {
      while (calls < until) await stage.rpc(callers[0] ?? null, 'ping')
    }
    for (let round = 0; round < ROUNDS; round += 1) {
      await busy(calls + CALLERS)
      const bindings = await Promise.all(callers.map((who) => stage.bind(who, files)))
      await stage.admin('PATCH', path, { enabled: round % 3 > 0 })
      await busy(calls + CALLERS)
      await Promise.all(
        bindings.map(({ binding_id: id }) => stage.admin('DELETE', `/v1/admin/mcp-resources/bindings/${id}`)),
      )
    }
    going = false
    await Promise.all(load)
    const rows = (await stage.rows()).filter(({ action }) => action === 'mcp_tools_call')
    const found = new Set(rows.map(({ status, detail }) => detail.reason ?? status))
    for (const one of ['allowed', 'mcp_not_bound', 'mcp_tool_unknown']) t.ok(found.has(one), one)
    t.comment(`${calls} calls, ${rows.length} rows`)
  },
)
