import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { alignColumns, jsonLines } from '../admin/printable.ts'
import { subcommandOf } from '../admin/subcommand.ts'
import { verbGroup } from '../admin/subcommands.ts'
import { capabilitiesIn, commandOf } from '../command.ts'

const SETS = '/v1/admin/sets'

interface NamedSet {
  readonly name: string
  readonly capabilities: readonly string[]
  /** Counts by type. */
  readonly principals: Readonly<Record<string, number>>
  readonly drifted: Readonly<Record<string, number>>
}

const countsIn = (counts: NamedSet['principals']): string =>
  Object.entries(counts)
    .map(([type, count]) => `${count} ${type}${count === 1 ? '' : 's'}`)
    .join(', ') || 'nobody'

const list = subcommandOf({
  takes: '',
  about: 'every named set, to how many it was given, and how many have drifted from it',
  options: { json: { type: 'boolean', default: false, description: 'as the admin API says it' } },
  work:
    ({ json }) =>
    async (call, say) => {
      const { sets } = expectStatus<{ sets: readonly NamedSet[] }>(await call('GET', SETS), 200)
      if (json) return say(...jsonLines(sets))
      const rows = sets.map((one) => [
        ...[one.name, countsIn(one.principals), countsIn(one.drifted)],
        one.capabilities.join(', ') || 'nothing',
      ])
      say(...alignColumns([['NAME', 'GIVEN TO', 'DRIFTED', 'HOLDS'], ...rows]))
    },
})

const put = subcommandOf({
  takes: 'NAME',
  about: 'name a set, or replace the one of that name; nobody holds more or less by it',
  options: { caps: { type: 'string', value: 'A,B', description: 'its capabilities' } },
  work: ({ caps }, positionals) => {
    const name = nameIn(positionals)
    if (caps === undefined) throw new Error('give its capabilities: --caps llm.chat,mcp.tools.list')
    const capabilities = capabilitiesIn(caps)
    return async (call, say) => {
      expectStatus(await call('PUT', `${SETS}/${encodeURIComponent(name)}`, { capabilities }), 200)
      say(`${name} = ${capabilities.join(', ') || 'nothing'}`)
    }
  },
})

const remove = subcommandOf({
  takes: 'NAME',
  about: 'delete the name; who was given the set keeps what it holds',
  options: {},
  work: (_, positionals) => {
    const name = nameIn(positionals)
    return async (call, say) => {
      expectStatus(await call('DELETE', `${SETS}/${encodeURIComponent(name)}`), 204)
      say(`${name} is deleted`)
    }
  },
})

function nameIn([name, ...rest]: readonly string[]): string {
  if (!name || rest.length > 0)
    throw new Error(`name one set: ${commandOf('sallyport ARGS="sets list"', 'sets list')} shows them`)
  return name
}

const { perform: _, ...verb } = verbGroup({
  name: 'sets',
  about: `Names sets of capabilities, which are templates. ${DOOR_NOTES}`,
  verbs: { list, put, delete: remove },
  notes: 'To give one to all that a search finds: Change all, under the list of agents, users or workloads.',
  helpCommand: commandOf('sallyport ARGS="sets --help"', 'sets --help'),
})

export { verb }
