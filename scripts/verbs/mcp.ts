import { type AdminCall, expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { jsonLines } from '../admin/printable.ts'
import { type AdminSubcommand, type PrintLines, subcommandOf } from '../admin/subcommand.ts'
import { verbGroup } from '../admin/subcommands.ts'
import { addCommand } from '../mcp/add.ts'
import { approveCommand, rejectCommand } from '../mcp/approve.ts'
import { bindCommand, unbindCommand } from '../mcp/bind.ts'
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
import {
  fetchBindings,
  fetchResources,
  mcpCommand,
  onServer,
  type ResourceView,
  resourceDetailNamed,
  resourceFromAnswer,
  resourcePath,
  toolNamed,
} from '../mcp/resources.ts'

const list = subcommandOf({
  takes: '',
  about: 'every server',
  options: { json: { type: 'boolean', default: false, description: 'as the admin API says it' } },
  work:
    ({ json }) =>
    async (call, say) => {
      const all = await fetchResources(call)
      if (json) say(...jsonLines(all))
      else say(...resourceTable(all, await fetchBindings(call)))
    },
})

const show = subcommandOf({
  takes: 'NAME [TOOL]',
  about: `one server, its tools, and how the quarantined ones differ from what was approved; with TOOL its
whole definition, as it was approved and as it waits`,
  options: {},
  work: (_, [name, tool, ...rest]) => {
    if (!name || tool === '' || rest.length > 0)
      throw new Error(`name the server: ${mcpCommand('show NAME [TOOL]')}`)
    return async (call, say) => {
      const resource = await resourceDetailNamed(call, name)
      if (tool === undefined) say(...resourceLines(resource, await fetchBindings(call, resource)))
      else say(...toolDetailLines(toolNamed(resource, tool)))
    }
  },
})

const SUBCOMMANDS: Readonly<Record<string, AdminSubcommand>> = {
  add: addCommand,
  list,
  show,
  refresh: onServer('refresh', 'read its tools again', refresh),
  approve: approveCommand,
  reject: rejectCommand,
  bind: bindCommand,
  unbind: unbindCommand,
  disable: onServer(
    'disable',
    'disable a server, from the next call on; approvals and bindings stay',
    disable,
  ),
  enable: onServer('enable', 'enable it again', enable),
  remove: onServer(
    'remove',
    'with its pinned tools and its bindings; added again, whatever it lists then is approved',
    remove,
  ),
}

const { perform, ...verb } = verbGroup({
  name: 'mcp',
  make: 'make mcp ARGS="VERB …"',
  about: `Puts MCP servers behind the gateway. ${DOOR_NOTES}`,
  verbs: SUBCOMMANDS,
  notes: `A server on this machine or in a private network needs MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true where the gateway runs.`,
  helpCommand: mcpCommand('--help'),
})

export { perform, verb }

async function refresh(call: AdminCall, say: PrintLines, { name, resource_id }: ResourceView): Promise<void> {
  const now = resourceFromAnswer(await call('POST', `${resourcePath(resource_id)}/refresh`), 200)
  if (now.last_error !== null) throw new Error(`${name} could not be read: ${now.last_error}`)
  say(`${name} was read: ${toolTotals(now.tools)}`)
  const waiting = now.tools.filter(({ state, pending_digest: digest }) => state !== 'gone' && digest !== null)
  if (waiting.length > 0)
    say(...toolLines(waiting), `look at it, then: ${mcpCommand(`approve ${name} TOOL`)}`)
  if (now.pending_server_digest !== null)
    say(...pendingServerLines(now), `look at it, then: ${mcpCommand(`approve ${name}`)}`)
  say(...skippedLines(now), ...unknownLines(now))
}

async function disable(call: AdminCall, say: PrintLines, { name, resource_id }: ResourceView): Promise<void> {
  expectStatus(await call('PATCH', resourcePath(resource_id), { enabled: false }), 200)
  say(`${name} is disabled: nothing of it is listed or called; its tools, approvals and bindings stay`)
}

async function enable(call: AdminCall, say: PrintLines, { name, resource_id }: ResourceView): Promise<void> {
  expectStatus(await call('PATCH', resourcePath(resource_id), { enabled: true }), 200)
  say(`${name} is enabled, with the tools that are approved`)
}

async function remove(call: AdminCall, say: PrintLines, { name, resource_id }: ResourceView): Promise<void> {
  expectStatus(await call('DELETE', resourcePath(resource_id)), 204)
  say(`${name} is removed, with its tools and bindings`)
}
