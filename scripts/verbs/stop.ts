import type { StopView } from '../../proxy/admin/stops/stops.ts'
import { stoppedText } from '../../proxy/admin/stops/words.ts'
import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { commandOf } from '../command.ts'

const SCOPES = 'all, llm, mcp, principal, resource or kind'

const begin = subcommandOf({
  takes: '',
  about: 'refuse calls from now on, on every gateway, and cut those under way',
  options: {
    all: { type: 'boolean', default: false, description: 'every call' },
    llm: { type: 'boolean', default: false, description: 'calls to models' },
    mcp: { type: 'boolean', default: false, description: 'calls to MCP servers' },
    principal: { type: 'string', value: 'ID', description: 'calls of one agent, user or workload' },
    resource: { type: 'string', value: 'ID', description: 'calls that reach one MCP server' },
    kind: { type: 'string', value: 'KIND', description: 'calls of all agents, users or workloads' },
    reason: { type: 'string', value: 'TEXT', description: 'why, for its callers and the ledger' },
    until: { type: 'string', value: 'INSTANT', description: 'when it ends by itself, within 7 days' },
  },
  check: ({ all, llm, mcp, principal, resource, kind, reason, until }) => {
    const scopes = [
      ...(all ? ['all'] : []),
      ...(llm ? ['llm'] : []),
      ...(mcp ? ['mcp'] : []),
      ...(principal === undefined ? [] : [{ principal }]),
      ...(resource === undefined ? [] : [{ resource }]),
      ...(kind === undefined ? [] : [{ kind }]),
    ]
    const [scope] = scopes
    if (scope === undefined || scopes.length > 1)
      throw new Error(`say once what to stop: --${SCOPES.replaceAll(', ', ', --').replace(' or ', ' or --')}`)
    if (reason === undefined) throw new Error('say why: --reason "a key has leaked"')
    return { scope, reason, ...(until !== undefined && { until }) }
  },
  run: async ({ call, say, checked }) => {
    const stop = expectStatus<StopView>(await call('POST', '/v1/admin/stops', checked), 201)
    const end = commandOf(
      `sallyport ARGS="stops end ${stop.stop_id} --reason …"`,
      `stops end ${stop.stop_id} --reason …`,
    )
    say(
      `stopped: ${stoppedText(stop.scope)}`,
      `${stop.stop_id}; it ends ${stop.until === null ? `by ${end}` : `at ${stop.until}`}`,
    )
  },
})

export const verb = verbGroup({
  name: 'stop',
  about: `Stops calls at once. ${DOOR_NOTES}`,
  verbs: { begin },
  usual: 'begin',
  notes: `Stopping demands admin.stop, and starting again admin.grant: ${commandOf('sallyport ARGS="stops --help"', 'stops --help')}.`,
})
