import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'

const ROOT = join(import.meta.dirname, '../../..')
/** The one file that reads TEST_ENGINE: what does not reach it is the same test on every engine. */
const CHOOSES = 'test/support/db/engine.ts'
/** They choose their engines themselves, whatever the run's is, and reach the choice by helpers alone. */
export const CHOOSE_THEMSELVES: Readonly<Record<string, string>> = {
  'test/cluster/': 'replicas share a PostgreSQL of their own',
  'test/db/postgres/': 'how PostgreSQL is used: on a server of its own',
  'test/db/sqlite/': 'how SQLite is used',
  'test/deploy/': 'what is deployed names its engine',
  'test/proxy/boot/rotate-passphrase': 'SQLite files, and a PostgreSQL of its own',
  'test/proxy/replicas': 'replicas share a PostgreSQL of their own',
  'test/scripts/cluster/': 'no row is stored',
  'test/scripts/verbs/cluster.test.ts': 'it brings a PostgreSQL of its own',
}
/** They are about PostgreSQL alone, on a server of their own: the run on PostgreSQL has them, and the other one has not. */
const OF_POSTGRES = ['test/db/postgres/', 'test/proxy/replicas']
export const isOfPostgres = (file: string): boolean => OF_POSTGRES.some((place) => file.startsWith(place))

/**
 * An engine can change a test if the test is about what is stored, by whom, and in which order: the ledger, the tables,
 * operators' operations, authority, claims, the start. It cannot change what a call meets before its decision or after it,
 * nor how it is shown or told what both engines answer alike, nor what a process keeps in its memory: these run on SQLite
 * alone. `test/spec` runs on both, so every kind of call below does too.
 */
export const SAME_ON_EVERY_ENGINE: Readonly<Record<string, string>> = {
  ...because(
    'how bytes come, before a route is found',
    [
      ...['answered-early', 'bodies', 'certificates', 'dripping', 'framing', 'gone-early', 'handshakes'],
      ...[
        'header-spoofing',
        'late-heads',
        'loop-bodies',
        'pages',
        'paths',
        'plain-http',
        'proxy-protocol',
        'slow-bodies',
      ],
      ...['slow-clients', 'streams', 'tiny-answers'],
    ],
    'test/attacks/',
  ),
  ...because(
    'what an MCP server sends, and a caller sees of it; what is pinned is stored by db/mcp and admin/mcp',
    [
      ...['answer-loop', 'canary', 'floods', 'modern', 'names', 'pinned-texts', 'rug-pull', 'schema-loop'],
      ...['sessions', 'upstream-faults'],
    ],
    'test/attacks/mcp/',
  ),
  ...because(
    'what a process counts and remembers by itself; replicas tell each other in test/proxy/replicas',
    ['admin-secret', 'descriptors', 'locked-out', 'lost-socket'],
    'test/attacks/',
  ),
  ...because(
    'what an operation demands, which is judged before it is made',
    ['attacks/climbs', 'proxy/admin/operators/demands'],
    'test/',
  ),
  ...because(
    'pages and forms: what a browser is sent',
    ['hidden-names', 'sign-in-answers', 'sign-in-browsers', 'stored-scripts'],
    'test/attacks/',
  ),
  ...because(
    'how a body is read, before it is decided on',
    ['llm-members', 'mcp/two-readers'],
    'test/attacks/',
  ),
  ...because(
    'the memory, the log and the name servers of the process',
    ['budget', 'heap', 'log-output', 'silent-name-servers'],
    'test/attacks/',
  ),
  'test/attacks/sign-in-provider': 'what a provider of identities sends',
  'test/attacks/debugger': 'how processes are started',
  'test/attacks/echoed-secrets': 'what an upstream answers, before it is passed on',
  'test/attacks/reload':
    'files of the operator, and how a process ends; what boots anew is test/attacks/boot',
  'test/clients/': 'clients of others, which speak HTTP',
  'test/conformance/': 'the protocol of MCP',
  'test/docs/verify-py.test': 'a file of rows, which admin/operators/chain has of both engines',
  'test/plugins/dpop/': 'facts and their checks',
  'test/plugins/policy/': 'facts and their checks',
  ...because(
    'how tokens and refusals are written',
    ['clients', 'fapi2', 'matrix', 'oracle', 'rfc6750', 'rfc8705', 'rfc9449', 'rfc9728'],
    'test/proxy/auth/',
  ),
  ...because(
    'pages, of what the API has in tests of both engines',
    [
      ...[
        'activity-browser',
        'browser',
        'candidate',
        'capabilities-form',
        'erase',
        'geometry',
        'grid',
        'introduction',
      ],
      ...['modes', 'proof', 'setup', 'trusted-cas'],
    ],
    'test/proxy/dashboard/',
  ),
  'test/proxy/federation/publish-faults': 'how the other side fails',
  'test/proxy/egress/': 'connections to others',
  'test/proxy/http/': 'HTTP alone',
  ...because('the protocol of MCP at both sides', ['doors', 'eras'], 'test/proxy/mcp/'),
  'test/proxy/mcp/failures': 'how a server fails',
  'test/proxy/mcp/upstream/': 'servers of others',
  'test/proxy/openapi/': 'the document of the routes',
  ...because('signing in by a browser', ['browser', 'by-certificate', 'oidc'], 'test/proxy/operators/'),
  ...because(
    'logs and authorities of others',
    ['anchors', 'go-peers', 'stamping', 'stamps'],
    'test/proxy/proofs/',
  ),
  'test/proxy/tasks/refresh-models': 'lists of providers',
  'test/proxy/tls/': 'TLS alone',
  ...because('the tests themselves', ['engines', 'lanes', 'run'], 'test/'),
  'test/scripts/client': 'clients, which see no database',
  ...because(
    'the words of the command line, which asks the API',
    [
      ...['mcp/', 'operators/operator', 'sallyport', 'verbs/ca.', 'verbs/commands', 'verbs/health'],
      ...['verbs/evidence', 'verbs/receipt', 'verbs/rehearse', 'verbs/witness.'],
    ],
    'test/scripts/',
  ),
  'test/siege': 'the attackers of the siege',
  'test/scripts/verbs/check-config': 'files alone',
  'test/scripts/verbs/witness-go': 'logs of others',
  'test/walk': 'the files that a call enters',
}

function because(reason: string, names: readonly string[], folder: string): Readonly<Record<string, string>> {
  return Object.fromEntries(names.map((name) => [`${folder}${name}`, reason]))
}

const ONE_ENGINE_ONLY = [...Object.keys(CHOOSE_THEMSELVES), ...Object.keys(SAME_ON_EVERY_ENGINE)]
const runsOnOne = (file: string): boolean => ONE_ENGINE_ONLY.some((place) => file.startsWith(place))
/** What a test must reach to have a database at all. */
const DATABASE = /^db\/(engine|sqlite|postgres)\b/

/** A test file, as a path from the root, and what it reaches. */
interface TestFile {
  readonly file: string
  /** It runs once for each engine: its database is the one that TEST_ENGINE names. */
  readonly runsOnBoth: boolean
  /** It opens a database in some way, or starts a program that does. */
  readonly hasDatabase: boolean
  /** The files of ours that it needs. */
  readonly reaches: ReadonlySet<string>
}

/**
 * Every test of the repository, by name. What a file reaches is what it imports, and every TypeScript file that a
 * text of its source names: programs that it starts. NOT what it puts together at run time.
 */
export function testFiles(): readonly TestFile[] {
  const files = globSync('test/**/*.test.ts', { cwd: ROOT }).toSorted()
  return files.map((file) => {
    const reached = reachedFrom(file)
    const hasDatabase = [...reached].some((path) => DATABASE.test(path))
    return { file, runsOnBoth: reached.has(CHOOSES) && !runsOnOne(file), hasDatabase, reaches: reached }
  })
}

const named = new Map<string, readonly string[]>()

function reachedFrom(file: string): ReadonlySet<string> {
  const reached = new Set([file])
  for (const path of reached) for (const next of namedIn(path)) reached.add(next)
  return reached
}

/** The files of ours that a source names. */
function namedIn(file: string): readonly string[] {
  const known = named.get(file)
  if (known !== undefined) return known
  const text = readFileSync(join(ROOT, file), 'utf8')
  // A type is gone before anything runs.
  const running = text.replaceAll(/^import type [^;]*? from '[^']+'/gm, '')
  const found = [...running.matchAll(/['"`]([\w./-]+\.ts)['"`]/g)].flatMap(([, path = '']) =>
    // No program is a test: one that is named is told about.
    path.endsWith('.test.ts')
      ? []
      : [join(dirname(file), path), path].filter((each) => existsSync(join(ROOT, each))).slice(0, 1),
  )
  const files = found.map((path) => relative(ROOT, join(ROOT, path)))
  named.set(file, files)
  return files
}
