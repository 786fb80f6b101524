import { expectStatus } from '../admin/call.ts'
import { DOOR_NOTES } from '../admin/door.ts'
import { subcommandOf, verbGroup } from '../admin/subcommand.ts'
import { capabilitiesIn, commandOf, JSON_OPTION } from '../command.ts'
import { alignColumns, jsonLines } from '../print.ts'

const SETS = '/v1/admin/sets'
const ONE_SET = `name one set: ${commandOf('sallyport ARGS="sets list"', 'sets list')} shows them`

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
  options: JSON_OPTION,
  run: async ({ call, say, values: { json } }) => {
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
  misuse: ONE_SET,
  options: { caps: { type: 'string', value: 'A,B', description: 'its capabilities' } },
  check: ({ caps }) => {
    if (caps === undefined) throw new Error('give its capabilities: --caps llm.chat,mcp.tools.list')
    return capabilitiesIn(caps)
  },
  run: async ({ call, say, args: [name], checked: capabilities }) => {
    expectStatus(await call('PUT', `${SETS}/${encodeURIComponent(name)}`, { capabilities }), 200)
    say(`${name} = ${capabilities.join(', ') || 'nothing'}`)
  },
})

const forget = subcommandOf({
  takes: 'NAME',
  about: 'delete the name; who was given the set keeps what it holds',
  misuse: ONE_SET,
  run: async ({ call, say, args: [name] }) => {
    expectStatus(await call('DELETE', `${SETS}/${encodeURIComponent(name)}`), 204)
    say(`${name} is deleted`)
  },
})

interface FoundChange {
  readonly found: number
  readonly principals: readonly {
    readonly principal_id: string
    readonly previous: readonly string[]
    readonly capabilities: readonly string[]
  }[]
  readonly etags: Readonly<Record<string, string>>
  readonly rehearsal?: { readonly totals: { readonly newly_refused: number } }
}

const apply = subcommandOf({
  takes: 'SEARCH',
  about: 'change the capabilities of all that a search finds, as one unit; first says what would change',
  misuse: 'give one search, e.g. label:team=red',
  options: {
    set: { type: 'string', value: 'NAME', description: 'give each the named set' },
    add: { type: 'string', value: 'A,B', description: 'give each these too' },
    remove: { type: 'string', value: 'A,B', description: 'take these from each' },
    replace: { type: 'string', value: 'A,B', description: 'give each these, and nothing else' },
    kind: { type: 'string', value: 'KIND', default: 'agents', description: 'agents, users or workloads' },
    'dry-run': { type: 'boolean', default: false, description: 'say what would change, and change nothing' },
  },
  check: ({ set, add, remove, replace, kind }, [q]) => {
    if (!KINDS.includes(kind)) throw new Error(`--kind must be ${KINDS.join(', ')}`)
    const lists = Object.entries({ add, remove, replace }).flatMap(([name, text]) =>
      text === undefined ? [] : [[name, capabilitiesIn(text)]],
    )
    return { q, ...(set !== undefined && { set }), ...Object.fromEntries(lists) }
  },
  run: async ({ call, say, values: { kind, 'dry-run': isDry }, checked: change }) => {
    const path = `/v1/admin/${kind}/capabilities`
    const shown = expectStatus<FoundChange>(await call('POST', `${path}?dry_run=true`, change), 200)
    const { found, principals, etags, rehearsal } = shown
    const refused = rehearsal?.totals.newly_refused ?? 0
    say(...principals.map(differenceIn))
    say(`${principals.length} of ${found} ${kind} ${isDry ? 'would change' : 'change'}`)
    if (refused > 0) say(`calls of the last 30 days that this would have refused: ${refused}`)
    if (isDry || principals.length === 0) return
    expectStatus(await call('POST', path, { ...change, etags }), 200)
    say('done')
  },
})

const KINDS = ['agents', 'users', 'workloads']

function differenceIn({
  principal_id: id,
  previous,
  capabilities,
}: FoundChange['principals'][number]): string {
  const more = capabilities.filter((one) => !previous.includes(one)).map((one) => `+${one}`)
  const less = previous.filter((one) => !capabilities.includes(one)).map((one) => `-${one}`)
  return `${id} ${[...more, ...less].join(' ') || 'is given the name of the set'}`
}

export const verb = verbGroup({
  name: 'sets',
  about: `Names sets of capabilities, which are templates. ${DOOR_NOTES}`,
  verbs: { list, put, delete: forget, apply },
  notes: `SEARCH is that of the lists: label:team=red, set:researcher, cap:llm.chat, a part of a name. What was found and has changed
before the change is made is named, and nothing is changed.`,
})
