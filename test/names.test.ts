import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'

// A reader who searches for a name finds one thing (CONTRIBUTING.md#how-it-is-written).
const ROOT = join(import.meta.dirname, '..')
const FOLDERS = ['proxy', 'plugins', 'db', 'certs', 'scripts']

/** Types of one word: the house's own nouns, and what the field always calls by one word. */
const NOUNS: ReadonlySet<string> = new Set([
  ...[
    'Accounts',
    'Arrival',
    'Checkpoint',
    'Configuration',
    'Database',
    'Decision',
    'Dialect',
    'Expectation',
    'Gateway',
  ],
  ...['Ledger', 'Operation', 'Permit', 'Pipeline', 'Plugin', 'Principal', 'Proposal', 'Receipt', 'Recorder'],
  ...['Refusal', 'Rehearsal', 'Reply', 'Route', 'Router', 'Settings', 'Surface'],
  // The client package's, which its users import.
  ...['Enrolled', 'Fetch', 'Identity'],
])
/** Each module of a list, and of a thread, exports its entry by this name. */
const ENTRIES: ReadonlySet<string> = new Set(['openTasks', 'up', 'verb', 'verbs'])

interface Declaration {
  readonly file: string
  readonly isExported: boolean
  readonly isType: boolean
  readonly name: string
}

const DECLARATION =
  /^(export )?(?:declare )?(?:abstract )?(?:async )?(interface|type|class|function\*?|const|let) (\w+)/gm

function declarationsIn(file: string): readonly Declaration[] {
  const text = readFileSync(join(ROOT, file), 'utf8')
  return [...text.matchAll(DECLARATION)].map(([, exported, kind = '', name = '']) => ({
    file,
    isExported: exported !== undefined,
    isType: kind === 'interface' || kind === 'type' || kind === 'class',
    name,
  }))
}

const declarations = FOLDERS.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: ROOT })).flatMap(
  declarationsIn,
)
const types = declarations.filter(({ isType }) => isType)
const isOneWord = (name: string): boolean => /^[A-Z][a-z0-9]*$/.test(name)

t.test('an exported name is declared in one file', (t) => {
  t.ok(declarations.length > 3_000, `${declarations.length} declarations were read`)
  const exported = declarations.filter(({ isExported, name }) => isExported && !ENTRIES.has(name))
  const twice = [...Map.groupBy(exported, ({ name }) => name)]
    .map(([name, all]) => [name, [...new Set(all.map(({ file }) => file))]] as const)
    .filter(([, files]) => files.length > 1)
  t.same(twice, [])
  t.end()
})

t.test('an exported type of one word is one of the nouns of the house', (t) => {
  const words = types.filter(({ isExported, name }) => isExported && isOneWord(name)).map(({ name }) => name)
  t.same(
    words.filter((name) => !NOUNS.has(name)),
    [],
  )
  t.same(
    [...NOUNS].filter((name) => !words.includes(name)),
    [],
    'no noun is listed that no type has',
  )
  t.end()
})

/** Irregular ones, and those that end like one. */
const PARTICIPLE =
  /^(?:[A-Z][a-z]+(?:ed|en|ing)|Found|Kept|Held|Told|Shown|Made|Sent|Heard|Bound|Built|Known|Taken|Said|Left|Meant|Given|Done|Seen|Asked|Read)$/
const NO_PARTICIPLES: ReadonlySet<string> = new Set(['Enrolled', 'Token', 'Need', 'Seed', 'String', 'Thing'])

t.test('no type is a bare participle', (t) => {
  const bare = types.filter(({ name }) => PARTICIPLE.test(name) && !NO_PARTICIPLES.has(name))
  t.same(bare, [])
  t.end()
})

t.test('a limit is called MAX_ or MIN_', (t) => {
  const limits = declarations.filter(({ name }) => /^(?:MOST|LEAST|FEWEST|LONGEST|SHORTEST|KEPT)_/.test(name))
  t.same(limits, [])
  t.end()
})
