import { readdir, readFile } from 'node:fs/promises'
import { dirname, join, relative } from 'node:path'
import t from 'tap'

// An import may only point to its own folder or to a lower one (docs/architecture.md). `certs` and `db` do
// not know each other.
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  certs: [],
  db: [],
  plugins: ['db', 'certs'],
  proxy: ['plugins', 'db', 'certs'],
  scripts: ['proxy', 'plugins', 'db', 'certs'],
}
const ROOT = join(import.meta.dirname, '..')

async function imports(folder: string): Promise<[file: string, target: string][]> {
  const names = await readdir(join(ROOT, folder), { recursive: true })
  const files = names.filter((name) => name.endsWith('.ts')).map((name) => join(folder, name))
  const found = await Promise.all(
    files.map(async (file) => {
      const text = await readFile(join(ROOT, file), 'utf8')
      const specifiers = [...text.matchAll(/(?:from|import\(|new URL\()\s*'(\.[^']+)'/g)].map(
        ([, path]) => path ?? '',
      )
      return specifiers.map((path): [string, string] => [file, join(dirname(file), path)])
    }),
  )
  return found.flat()
}

const folderOf = (file: string): string => relative('', file).split('/')[0] ?? ''

await t.test('imports point only right and down', async (t) => {
  for (const [folder, allowed] of Object.entries(MAY_IMPORT)) {
    const found = await imports(folder)
    t.ok(found.length > 0, `${folder} was read`)
    const bad = found.filter(([, target]) => {
      const to = folderOf(target)
      return to !== folder && to !== 'package.json' && !allowed.includes(to)
    })
    t.same(bad, [], folder)
  }
})

// What each room of `proxy` may import alongside itself. `wiring` joins the rooms and may import all of them. `admin` and `tasks`
// may use the pins of MCP. A room that is not named here does not exist.
const ROOMS: Readonly<Record<string, readonly string[]>> = {
  boot: [],
  telemetry: [],
  egress: ['tls'],
  tls: [],
  http: ['telemetry', 'tls'],
  auth: ['http'],
  content: ['http'],
  llm: ['http', 'egress', 'content'],
  mcp: ['http', 'egress', 'content'],
  tasks: ['http', 'llm', 'mcp/pinning'],
  proofs: ['http', 'admin', 'egress', 'tasks'],
  archive: ['admin', 'proofs', 'tasks'],
  notify: ['egress'],
  export: ['admin', 'egress'],
  federation: ['auth', 'egress', 'tasks'],
  admin: ['http', 'egress', 'mcp/accounts', 'mcp/pinning'],
  operators: ['http', 'admin', 'egress'],
  dashboard: ['http', 'admin', 'operators', 'proofs'],
  openapi: ['http'],
  people: ['http', 'admin', 'operators', 'egress', 'auth', 'mcp/accounts'],
}
/** Any room may import these. */
const LEAVES = [
  ...['settings', 'networks', 'names', 'version', 'data-directory'].map((name) => `boot/${name}.ts`),
  'visible.ts',
  'client-settings.ts',
]

await t.test(
  'the rooms of proxy import only downwards; llm, mcp and admin do not know each other',
  async (t) => {
    for (const [file, target] of await imports('proxy')) {
      const [, room = '', ...inside] = file.split('/')
      if (inside.length === 0 || room === 'wiring') continue
      const to = target.split('/').slice(1).join('/')
      const allowed = [room, ...(ROOMS[room] ?? [])].some((name) => to.startsWith(`${name}/`))
      if (target.startsWith('proxy/') && !allowed && !LEAVES.includes(to)) t.fail(`${file} imports ${target}`)
    }
    const entries = await readdir(join(ROOT, 'proxy'), { withFileTypes: true })
    const rooms = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name)
    t.same(rooms.toSorted(), [...Object.keys(ROOMS), 'wiring'].toSorted(), 'the table names every room')
  },
)

const MAX_LINES_OF_ROUTES = 120

await t.test(
  'every door of a room stands in its routes.ts, and every routes.ts in proxy/routes.ts',
  async (t) => {
    const list = await readFile(join(ROOT, 'proxy/routes.ts'), 'utf8')
    t.ok(list.split('\n').length <= MAX_LINES_OF_ROUTES, 'the list is short')
    for (const name of await readdir(join(ROOT, 'proxy'), { recursive: true })) {
      if (!name.endsWith('.ts') || name === 'routes.ts' || name === 'http/route.ts') continue
      const isList = name.endsWith('/routes.ts')
      if (isList) t.ok(list.includes(`from './${name}'`), `${name} is on the list`)
      const text = await readFile(join(ROOT, 'proxy', name), 'utf8')
      if (!isList) t.notMatch(text, /\b(?:gated|open|forked)(?:Route|Branch)\(/, `${name} makes no route`)
    }
  },
)

const CLIENT_ENTRIES = ['client/index.ts', 'client/client.ts', 'client/cli.ts', 'register.ts'].map(
  (name) => `scripts/${name}`,
)
/** Each import that is more than a type. */
const ANY_IMPORT = /^(?!import type).*(?:\bfrom |\bimport\()'([\w@#./:-]+)'/gm
/** Finds the imports that are done before anything else. */
const FIRST_IMPORT = /^(?!import type|export type).*\bfrom '([\w@#./:-]+)'/gm

/** Lists the npm packages that files load, with all that they import. */
async function packagesOf(entries: readonly string[], pattern: RegExp): Promise<ReadonlySet<string>> {
  const [files, packages] = [new Set(entries), new Set<string>()]
  for (const file of files) {
    const text = await readFile(join(ROOT, file), 'utf8')
    for (const [, name = ''] of text.matchAll(pattern)) {
      if (name.startsWith('.')) files.add(join(dirname(file), name))
      else if (!/^node:|^#/.test(name)) packages.add(name)
    }
  }
  return packages
}

await t.test('a gateway imports no value of node:http, which would load a second HTTP client', async (t) => {
  const loads: string[] = []
  for (const folder of ['certs', 'db', 'plugins', 'proxy'])
    for (const name of await readdir(join(ROOT, folder), { recursive: true })) {
      const text = name.endsWith('.ts') ? await readFile(join(ROOT, folder, name), 'utf8') : ''
      if (/^import (?!type\b)[^']*from 'node:http'$/m.test(text)) loads.push(join(folder, name))
    }
  t.same(loads, [], 'db/support/node-http.ts has its parts')
})

await t.test('the package for clients needs undici, and no other package', async (t) => {
  const packages = await packagesOf(CLIENT_ENTRIES, ANY_IMPORT)
  t.same([...packages], ['undici'], 'it is installed where nothing else is')
})

/** The verbs that load more at once: they read operators' files, a database or a pack, or speak to a gateway by TLS. */
const LOADING_VERBS = [
  ...['check-config', 'connect', 'copy-database', 'enroll', 'env', 'export-audit', 'migrate', 'receipt'],
  ...['renew', 'rotate-passphrase', 'translate', 'verify', 'witness'],
]

await t.test('a verb that asks the gateway of its machine loads no more than that needs', async (t) => {
  const names = await readdir(join(ROOT, 'scripts/verbs'))
  const asking = names.filter((name) => !LOADING_VERBS.includes(name.slice(0, -'.ts'.length)))
  t.equal(asking.length, names.length - LOADING_VERBS.length)
  for (const name of asking) {
    const packages = await packagesOf([`scripts/verbs/${name}`], FIRST_IMPORT)
    t.same(
      [...packages].filter((one) => one !== 'ipaddr.js'),
      [],
      `${name}: a validator and a client of HTTP are two thirds of its start`,
    )
  }
})

type RoomImports = Readonly<Record<string, readonly string[]>>

/**
 * The rooms of proxy/mcp, and what each may import of the whole proxy: handlers → gate → {pinning, state} →
 * {upstream, schema} → protocol. A folder may import its parent's files where they are named here.
 */
const MCP_MAY_IMPORT: RoomImports = {
  protocol: ['boot', 'visible.ts'],
  accounts: ['egress'],
  aside: ['mcp/protocol'],
  'aside-thread.ts': ['mcp/aside', 'mcp/pinning', 'mcp/schema', 'mcp/upstream'],
  schema: ['mcp/protocol', 'visible.ts'],
  upstream: ['mcp/aside', 'mcp/protocol', 'mcp/options.ts', 'egress', 'boot'],
  'http-get': ['mcp/protocol', 'egress', 'boot'],
  pinning: ['mcp/aside', 'mcp/upstream', 'mcp/schema', 'mcp/protocol', 'visible.ts'],
  state: ['mcp/protocol'],
  gate: [
    'mcp/accounts',
    'mcp/upstream',
    'mcp/aside',
    'mcp/pinning',
    'mcp/state',
    'mcp/schema',
    'mcp/protocol',
    'mcp/http-get',
  ],
  handlers: [
    ...['mcp/aside', 'mcp/gate', 'mcp/pinning', 'mcp/state', 'mcp/upstream', 'mcp/protocol', 'mcp/http-get'],
    ...['mcp/refusal.ts', 'http', 'content'],
  ],
  'options.ts': ['mcp/http-get'],
  'pages.ts': ['http'],
  'refusal.ts': ['mcp/protocol', 'http'],
  'routes.ts': [...['mcp/gate', 'mcp/handlers', 'mcp/protocol', 'mcp/pages.ts', 'mcp/refusal.ts'], 'http'],
  'mcp.ts': ['mcp/gate', 'mcp/state', 'mcp/upstream', 'mcp/options.ts', 'egress'],
}

/** The rooms of proxy/admin: http → everything; pipeline.ts, rehearsals, proposals → conditions → the resources → operation. */
const ADMIN_MAY_IMPORT: RoomImports = {
  approvals: ['admin/operation', 'mcp'],
  audit: ['admin/operation'],
  authority: ['admin/conditions', 'admin/operation', 'admin/operators'],
  conditions: ['admin/operation'],
  costs: ['admin/audit', 'admin/operation'],
  http: [
    'admin/approvals',
    'admin/audit',
    'admin/authority',
    'admin/conditions',
    'admin/costs',
    'admin/keys',
    'admin/limits',
    'admin/mcp',
    'admin/operation',
    'admin/operators',
    'admin/pipeline.ts',
    'admin/principals',
    'admin/proposals',
    'admin/providers',
    'admin/rehearsals',
    'admin/sets',
    'admin/stops',
    'http',
    'visible.ts',
  ],
  keys: ['admin/operation', 'admin/operators', 'boot'],
  limits: ['admin/conditions', 'admin/operation'],
  mcp: ['admin/operation', 'admin/principals', 'egress', 'mcp'],
  operation: ['boot', 'mcp'],
  operators: ['admin/operation'],
  'pipeline.ts': ['admin/conditions', 'admin/operation'],
  principals: ['admin/conditions', 'admin/operation', 'admin/operators', 'http', 'mcp'],
  proposals: ['admin/conditions', 'admin/operation', 'admin/pipeline.ts'],
  providers: ['admin/operation'],
  rehearsals: ['admin/conditions', 'admin/operation', 'admin/principals', 'admin/sets'],
  sets: ['admin/conditions', 'admin/operation', 'admin/principals'],
  stops: ['admin/operation'],
}

/** The rooms of proxy/dashboard: a page's room may import the frame of all pages, and what pages share. */
const DASHBOARD_MAY_IMPORT: RoomImports = {
  activity: ['admin', 'dashboard/frame', 'http', 'proofs', 'visible.ts'],
  approvals: ['admin', 'dashboard/frame', 'operators'],
  attention: ['admin', 'dashboard/activity', 'dashboard/frame', 'dashboard/limits', 'visible.ts'],
  capabilities: ['admin', 'dashboard/frame', 'http'],
  costs: ['admin', 'dashboard/frame', 'visible.ts'],
  frame: [
    'admin',
    'client-settings.ts',
    'dashboard/activity',
    'dashboard/rehearsed',
    'dashboard/settings',
    'http',
    'operators',
  ],
  limits: ['admin', 'dashboard/activity', 'dashboard/frame', 'dashboard/rehearsed'],
  pki: ['admin', 'dashboard/frame', 'dashboard/rehearsed'],
  principals: ['admin', 'dashboard/activity', 'dashboard/frame', 'dashboard/rehearsed', 'http', 'operators'],
  proof: ['admin', 'dashboard/activity', 'dashboard/frame', 'http'],
  providers: ['admin', 'dashboard/activity', 'dashboard/frame'],
  rehearsed: ['admin', 'dashboard/frame', 'http', 'operators'],
  settings: ['admin', 'dashboard/frame', 'dashboard/rehearsed', 'http', 'operators'],
  setup: ['admin', 'dashboard/frame', 'dashboard/principals', 'http', 'operators'],
  stops: ['admin', 'dashboard/frame', 'dashboard/rehearsed'],
  tools: ['admin', 'dashboard/frame', 'dashboard/rehearsed'],
  'routes.ts': [
    ...[
      'activity',
      'approvals',
      'attention',
      'capabilities',
      'costs',
      'frame',
      'limits',
      'pki',
      'principals',
      'proof',
      'providers',
      'settings',
      'setup',
      'stops',
      'tools',
    ].map((room) => `dashboard/${room}`),
    ...['admin', 'http', 'operators'],
  ],
}

/** The rooms of db/ledger: meters → record → canonical → {metered → authority, tree, counts} → verify → read; rehearsal → authority. */
const LEDGER_MAY_IMPORT: RoomImports = {
  approvals: ['ledger/canonical', 'ledger/record', 'support'],
  authority: ['ledger/approvals', 'ledger/canonical', 'ledger/metered', 'ledger/record', 'stops', 'support'],
  canonical: ['ledger/record', 'support'],
  counts: ['schema.ts', 'support'],
  cursors: ['database.ts', 'ledger/read', 'ledger/record', 'ledger/tree', 'schema.ts', 'support'],
  read: [
    'database.ts',
    'ledger/authority',
    'ledger/counts',
    'ledger/record',
    'ledger/tree',
    'ledger/verify',
    'schema.ts',
    'support',
  ],
  metered: ['ledger/canonical', 'ledger/meters', 'ledger/record', 'limits', 'schema.ts', 'support'],
  meters: ['support'],
  record: ['authority-moves.ts', 'database.ts', 'ledger/meters', 'schema.ts', 'support'],
  rehearsal: [
    ...['ledger/authority', 'ledger/meters', 'ledger/record', 'limits', 'schema.ts'],
    ...['stops', 'support'],
  ],
  tree: ['database.ts', 'ledger/record', 'schema.ts', 'support'],
  verify: [
    ...['ledger/approvals', 'ledger/authority', 'ledger/canonical', 'ledger/metered', 'ledger/record'],
    ...['ledger/tree', 'schema.ts', 'support'],
  ],
}

/**
 * The first folder or file below `folder` on the way to `file`: `http-get` of `proxy/mcp/http-get/hop.ts`.
 */
const roomIn = (folder: string, file: string): string => relative(folder, file).split('/')[0] ?? ''

for (const [folder, table] of [
  ['proxy/mcp', MCP_MAY_IMPORT],
  ['proxy/admin', ADMIN_MAY_IMPORT],
  ['proxy/dashboard', DASHBOARD_MAY_IMPORT],
  ['db/ledger', LEDGER_MAY_IMPORT],
] as const)
  await t.test(`inside ${folder} imports point only down`, async (t) => {
    const [floor = '', name = ''] = folder.split('/')
    const crossing = (await imports(folder)).filter(
      ([file, target]) => folderOf(target) === floor && roomIn(folder, file) !== roomIn(folder, target),
    )
    const rooms = new Set(crossing.map(([file]) => roomIn(folder, file)))
    t.same([...rooms].toSorted(), Object.keys(table).toSorted(), 'the table names every room')
    const bad = crossing.filter(([file, target]) => {
      const room = roomIn(floor, target)
      return !table[roomIn(folder, file)]?.includes(
        room === name ? `${name}/${roomIn(folder, target)}` : room,
      )
    })
    t.same(bad, [])
  })

/** Folders that are lists: they may hold any number of files. */
const LISTS = /^(scripts\/verbs|db\/migrations|docs\/schema|plugins\/config)$/
const MAX_FILES_IN_ROOM = 16
/** Rooms that still hold more, and how many. */
const TOO_FULL: Readonly<Record<string, number>> = {
  plugins: 17,
}

await t.test('a room holds 16 files at most', async (t) => {
  for (const floor of Object.keys(MAY_IMPORT)) {
    const files = (await readdir(join(ROOT, floor), { recursive: true }))
      .filter((name) => name.endsWith('.ts'))
      .map((name) => dirname(join(floor, name)))
    for (const [room, of] of Map.groupBy(files, (room) => room))
      if (!LISTS.test(room))
        t.ok(of.length <= (TOO_FULL[room] ?? MAX_FILES_IN_ROOM), `${room} holds ${of.length} files`)
  }
})

const PERMIT_MAKERS: Readonly<Record<string, string>> = {
  CallPermit: 'plugins/capability.ts',
  OperatorPermit: 'proxy/mcp/pinning/inspect.ts',
  CatalogPermit: 'proxy/tasks/refresh-models.ts',
  CredentialPermit: 'proxy/llm/credentials/sources.ts',
}

await t.test('each kind of permit is made in one place, and no other file claims to have one', async (t) => {
  const makers: Record<string, string[]> = {}
  for (const folder of Object.keys(MAY_IMPORT)) {
    for (const name of await readdir(join(ROOT, folder), { recursive: true })) {
      if (!name.endsWith('.ts')) continue
      const text = await readFile(join(ROOT, folder, name), 'utf8')
      for (const [, kind = ''] of text.matchAll(/\bas\s+(?:unknown\s+as\s+)?(\w*Permit)\b/g))
        makers[kind] = [...(makers[kind] ?? []), join(folder, name)]
    }
  }
  t.same(makers, Object.fromEntries(Object.entries(PERMIT_MAKERS).map(([kind, file]) => [kind, [file]])))
})

/** The files that send by undici. Of a caller's calls: each compares what they are allowed by before a byte leaves. */
const SENDERS: Readonly<Record<string, string | null>> = {
  'proxy/llm/upstream/client.ts': '.authority.unchanged) throw OVERTAKEN',
  'proxy/mcp/upstream/exchange.ts': '.authority.unchanged) throw OVERTAKEN',
  'proxy/mcp/http-get/fetch.ts': 'new AllowedDispatchHandler(',
  // On nobody's behalf.
  'proxy/export/https-sink.ts': null,
  'proxy/federation/follow-bundles.ts': null,
  'proxy/federation/publish.ts': null,
  'proxy/notify/targets.ts': null,
  'proxy/egress/bounded-fetch.ts': null,
  'proxy/proofs/anchors/web.ts': null,
  'proxy/telemetry/otlp/sender.ts': null,
}

await t.test(
  'H19: whatever sends for a caller asks, as it leaves, whether it is still allowed',
  async (t) => {
    const found: string[] = []
    for (const folder of ['proxy', 'plugins', 'db', 'certs']) {
      for (const name of await readdir(join(ROOT, folder), { recursive: true })) {
        if (!name.endsWith('.ts')) continue
        const file = join(folder, name)
        const text = await readFile(join(ROOT, file), 'utf8')
        if (
          !/from 'undici'/.test(text) ||
          !/\.(?:dispatch|request|fetch|stream|pipeline|connect|upgrade)\(/.test(text)
        )
          continue
        found.push(file)
        const asks = SENDERS[file]
        if (typeof asks === 'string') t.ok(text.includes(asks), `${file} asks`)
      }
    }
    t.same(found.toSorted(), Object.keys(SENDERS).toSorted())
  },
)

await t.test('no file imports itself in a circle', async (t) => {
  const edges = new Map<string, Set<string>>()
  for (const folder of Object.keys(MAY_IMPORT)) {
    for (const [file, target] of await imports(folder))
      edges.set(file, (edges.get(file) ?? new Set()).add(target))
  }
  const done = new Set<string>()
  const visit = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) t.fail(`a circle: ${[...path, file].join(' → ')}`)
    if (done.has(file) || path.includes(file)) return
    for (const next of edges.get(file) ?? []) visit(next, [...path, file])
    done.add(file)
  }
  for (const file of edges.keys()) visit(file, [])
  t.ok(done.size > 50, `${done.size} files were followed`)
})
