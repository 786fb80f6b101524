import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { REHEARSE_OPTION, sayRehearsed } from '../admin/rehearsal.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { JSON_OPTION } from '../command.ts'
import { addCommand as add, bindCommand as bind, unbindCommand as unbind } from '../mcp/add.ts'
import { approveCommand as approve, rejectCommand as reject } from '../mcp/approve.ts'
import {
  pendingServerLines,
  resourceLines,
  resourceTable,
  skippedLines,
  toolDetailLines,
  toolLines,
  toolTotals,
  unknownLines,
} from '../mcp/lines.ts'
import { proofCommand as proof } from '../mcp/proof.ts'
import {
  fetchBindings,
  fetchResources,
  mcpCommand,
  onServer,
  type ResourceDetailView,
  resourceDetailNamed,
  resourceNamed,
  resourcePath,
  toolNamed,
} from '../mcp/resources.ts'
import { jsonLines } from '../print.ts'

const list = subcommandOf({
  takes: '',
  about: 'every server',
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
    const all = await fetchResources(call)
    if (json) say(...jsonLines(all))
    else say(...resourceTable(all, await fetchBindings(call)))
  },
})

const show = subcommandOf({
  takes: 'NAME [TOOL]',
  about: `one server, its tools, and how the quarantined ones differ from what was approved; with TOOL its
whole definition, as it was approved and as it waits`,
  misuse: `name the server: ${mcpCommand('show NAME [TOOL]')}`,
  run: async ({ call, say, args: [name, tool] }) => {
    const resource = await resourceDetailNamed(call, name)
    if (tool === undefined) say(...resourceLines(resource, await fetchBindings(call, resource)))
    else say(...toolDetailLines(toolNamed(resource, tool)))
  },
})

const refresh = onServer('refresh', 'read its tools again', async (call, say, { name, resource_id }) => {
  const now = expectStatus<ResourceDetailView>(
    await call('POST', `${resourcePath(resource_id)}/refresh`),
    200,
  )
  if (now.last_error !== null) throw new Error(`${name} could not be read: ${now.last_error}`)
  say(`${name} was read: ${toolTotals(now.tools)}`)
  const waiting = now.tools.filter(({ state, pending_digest: digest }) => state !== 'gone' && digest !== null)
  if (waiting.length > 0)
    say(...toolLines(waiting), `look at it, then: ${mcpCommand(`approve ${name} TOOL`)}`)
  if (now.pending_server_digest !== null)
    say(...pendingServerLines(now), `look at it, then: ${mcpCommand(`approve ${name}`)}`)
  say(...skippedLines(now), ...unknownLines(now))
})

const disable = onServer(
  'disable',
  'disable a server, from the next call on; approvals and bindings stay',
  async (call, say, { name, resource_id }) => {
    expectStatus(await call('PATCH', resourcePath(resource_id), { enabled: false }), 200)
    say(`${name} is disabled: nothing of it is listed or called; its tools, approvals and bindings stay`)
  },
)

const enable = onServer('enable', 'enable it again', async (call, say, { name, resource_id }) => {
  expectStatus(await call('PATCH', resourcePath(resource_id), { enabled: true }), 200)
  say(`${name} is enabled, with the tools that are approved`)
})

const approval = subcommandOf({
  takes: 'NAME WHO [TOOL…]',
  about: `have each call of a server, or of these tools of it, wait until WHO has approved it: operator, person
or nobody`,
  misuse: `name the server, and who approves its calls: ${mcpCommand('approval NAME operator|person|nobody [TOOL…]')}`,
  options: REHEARSE_OPTION,
  run: async ({ call, say, args: [name, who, ...tools], values: { rehearse } }) => {
    const { resource_id: id, tool_approvals: own } = await resourceNamed(call, name)
    const by = who === 'nobody' ? null : who
    const rule =
      tools.length === 0
        ? { approval: by }
        : { tool_approvals: { ...own, ...Object.fromEntries(tools.map((tool) => [tool, by])) } }
    if (rehearse) return sayRehearsed(call, say, { resource: id, ...rule })
    expectStatus(await call('PATCH', resourcePath(id), rule), 200)
    const what = tools.length === 0 ? name : `${tools.join(', ')} of ${name}`
    say(
      by === null
        ? `calls of ${what} need no approval`
        : `each call of ${what} needs the approval of: ${who}`,
    )
  },
})

const remove = onServer(
  'remove',
  'with its pinned tools and its bindings; added again, whatever it lists then is approved',
  async (call, say, { name, resource_id }) => {
    expectStatus(await call('DELETE', resourcePath(resource_id)), 204)
    say(`${name} is removed, with its tools and bindings`)
  },
)

export const verb = verbGroup({
  name: 'mcp',
  make: 'make mcp ARGS="VERB …"',
  about: `Puts MCP servers behind the gateway. ${DOOR_NOTES}`,
  verbs: {
    add,
    list,
    show,
    refresh,
    approve,
    reject,
    approval,
    bind,
    unbind,
    proof,
    disable,
    enable,
    remove,
  },
  notes: `A server on this machine or in a private network needs MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true where the gateway runs.`,
  helpCommand: mcpCommand('--help'),
})
