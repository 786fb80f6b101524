import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse as parseYaml } from 'yaml'
import { OPERATOR_SETS, TWO_PERSON_KINDS } from '../../plugins/operators/capabilities.ts'
import { REFUSAL_REASONS } from '../../plugins/refusal.ts'
import { readSettings } from '../../proxy/boot/settings.ts'
import { createMetrics } from '../../proxy/telemetry/metrics.ts'
import { LIMITS } from '../support/docs/limits.ts'
import type { Json } from '../support/gateway.ts'
import { ENTRIES } from '../support/openapi.ts'

// What the pages state of settings, metrics, reasons, rows, routes, commands and limits is so in the code. A
// sentence may be written again freely: only the names and numbers in it are held.
const ROOT = join(import.meta.dirname, '../..')
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8')
// The changelog and decisions say what was so once.
const PAGES = globSync(['*.md', 'docs/*.md', 'plugins/**/*.md'], { cwd: ROOT }).filter(
  (page) => page !== 'CHANGELOG.md',
)
const sourcesOf = (...folders: string[]): string =>
  folders.flatMap((folder) => globSync(`${folder}/**/*.ts`, { cwd: ROOT }).map(read)).join('\n')
const CODE = sourcesOf('proxy', 'plugins', 'db', 'certs', 'scripts')

/** The text of a page from one mark to the next. */
function between(page: string, from: string, to: string): string {
  const text = read(page)
  const start = text.indexOf(from)
  const end = text.indexOf(to, start + from.length)
  if (start < 0 || end < 0) throw new Error(`${page} has no part from ${from} to ${to}`)
  return text.slice(start, end)
}

/** Every match of a pattern in a text, its first group, each once. */
const named = (text: string, pattern: RegExp): readonly string[] => [
  ...new Set([...text.matchAll(pattern)].map(([, name = '']) => name)),
]

/** Every name on every page that a pattern finds, and that is none. */
const unknownOn = (pattern: RegExp, isKnown: (name: string) => boolean): readonly string[] =>
  PAGES.flatMap((page) =>
    named(read(page), pattern)
      .filter((name) => !isKnown(name))
      .map((name) => `${page}: ${name}`),
  )

const NUMERALS = ['none', 'one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine', 'ten']

const numberOf = (text: string): number =>
  NUMERALS.includes(text.toLowerCase())
    ? NUMERALS.indexOf(text.toLowerCase())
    : Number(text.replaceAll(',', ''))

await t.test('every setting that a page names is one, and each has its row with its default', (t) => {
  const settings = (env: Record<string, string>) => {
    const { named: _, ...values } = readSettings(env, '/srv')
    return values
  }
  const isSetting = (name: string): boolean => {
    try {
      readSettings({ [name]: '' }, '/srv')
      return true
    } catch (error) {
      // An empty mode is a template that failed; it is a setting all the same.
      return !/ is not a setting| is no longer a setting/.test(String(error))
    }
  }
  t.same(unknownOn(/\b(MCP_PROXY_[A-Z_]*[A-Z])\b(?!_)/g, isSetting), [])
  const table = between('docs/operating.md', '## Settings', '<a id="postgresql">')
  const all = named(read('proxy/boot/settings.ts'), /^ {2}'(MCP_PROXY_\w+)',$/gm)
  t.ok(all.length > 20)
  for (const name of all) t.match(table, `\`${name}\``, `docs/operating.md#settings has ${name}`)
  for (const name of named(table, /`(MCP_PROXY_\w+_FILE)`/g)) t.ok(isSetting(name), name)

  const rows = [...table.matchAll(/^\| `(MCP_PROXY_\w+)` \| `([^`]+)` \|/gm)]
  t.ok(rows.length > 10)
  for (const [, name = '', value = ''] of rows) {
    t.strictSame(settings({ [name]: value.replace('<data>', '/srv/data') }), settings({}), `${name}=${value}`)
  }
  t.end()
})

await t.test('docs/operating.md names every metric with its labels, and no page another one', async (t) => {
  const none = (): number => 0
  const later = () => Promise.resolve(0)
  const { registry } = createMetrics({
    ...{ waiting: none, owed: none, held: none, unsealed: later, lateAnchors: later },
    ...{
      brokenExpectations: later,
      quarantined: later,
      unreadable: later,
      diskFree: none,
      diskReserve: none,
    },
    ...{
      failing: () => false,
      lostLines: none,
      reachable: () => Promise.resolve(true),
      listening: () => true,
    },
    descriptors: { open: 1, limit: 1, connections: 1, mostConnections: 1 },
    providerStates: () => [],
    exportLags: () => Promise.resolve([]),
    certificates: () => Promise.resolve(new Map()),
  } as unknown as Parameters<typeof createMetrics>[0])
  const metrics = new Map<string, string>()
  for (const { name } of await registry.getMetricsAsJSON()) {
    const { labelNames = [] } = registry.getSingleMetric(name) as { labelNames?: readonly string[] }
    if (name.startsWith('sallyport_'))
      metrics.set(name, labelNames.length > 0 ? `{${labelNames.join()}}` : '')
  }
  const section = between('docs/operating.md', '## Metrics', '## Identities')
  const written = new Map(
    [...section.matchAll(/`(sallyport_\w+)(\{[\w,]+\})?`/g)].map(([, name = '', labels = '']) => [
      name,
      labels,
    ]),
  )
  t.strictSame(Object.fromEntries(written), Object.fromEntries(metrics))
  const roles = ['sallyport_owner', 'sallyport_gateway']
  t.same(
    unknownOn(/`(sallyport_\w+)/g, (name) => metrics.has(name) || roles.includes(name)),
    [],
  )
})

await t.test('docs/protocol.md gives each reason the status that it has', (t) => {
  const reasons: Readonly<Record<string, { status: number; final?: boolean }>> = REFUSAL_REASONS
  const statusOf = (reason: string): number | undefined => reasons[reason]?.status
  const words = /`([a-z]+_[a-z_]+|conflict|internal|overloaded)`/g

  const rows = [
    ...between('docs/protocol.md', '<a id="error-types">', '<a id="reasons-401">').matchAll(
      /^\| ([\d, ]+) \| [^|]+ \| ([^|]+) \|$/gm,
    ),
  ]
  t.ok(rows.length > 10)
  for (const [, statuses = '', cell = ''] of rows) {
    for (const reason of named(cell, words)) {
      t.ok(statuses.split(', ').includes(String(statusOf(reason))), `${statuses}: ${reason}`)
    }
  }
  const paragraph = between('docs/protocol.md', '<a id="reasons-401">', '<a id="retry-advice">')
  for (const [, status = '', text = ''] of paragraph.matchAll(/\*\*(\d{3})\*\* ([^*]+?)\.\s/g)) {
    for (const reason of named(text, words)) t.equal(statusOf(reason), Number(status), reason)
  }
  const advice = between('docs/protocol.md', '<a id="retry-advice">', 'a retry')
  const final = Object.keys(reasons).filter(
    (reason) => (statusOf(reason) ?? 0) >= 500 && reasons[reason]?.final,
  )
  t.same(named(advice, words).toSorted(), final.toSorted(), 'the faults that a retry does not cure')

  const certificates = between('docs/protocol.md', '<a id="certificate-checks">', '<a id="mcp-resources">')
  for (const reason of named(certificates, /(?<!\/)`([a-z_]+)`(?!\*\*|,? `?trust)/g)) {
    if (!['certificate', 'trust_bundle_pem'].includes(reason)) t.equal(statusOf(reason), 422, reason)
  }
  t.end()
})

await t.test('docs/protocol.md gives each reason of an MCP refusal its code', (t) => {
  const [, table = ''] = /const CODES[^{]+\{([^}]+)\}/.exec(read('proxy/mcp/refusal.ts')) ?? []
  const codes: Record<string, string> = { METHOD_NOT_FOUND: '-32601', INVALID_PARAMS: '-32602' }
  for (const name of ['HEADER_MISMATCH', 'UNSUPPORTED_VERSION'])
    codes[name] =
      new RegExp(`const ${name} = (-\\d+)`).exec(read('proxy/mcp/protocol/json-text.ts'))?.[1] ?? ''
  const coded = [...table.matchAll(/^ {2}(\w+): (\S+),$/gm)].map(([, reason = '', code = '']) => [
    reason,
    codes[code] ?? code,
  ])
  const section = between('docs/protocol.md', '<a id="mcp-errors">', '<a id="mcp-relay">')
  const written = [...section.matchAll(/^\| (-\d{5}) \| ([^|]+) \|/gm)].flatMap(([, code, cell = '']) =>
    named(cell.split(/[:;]|with /)[0] ?? '', /`(\w+)`/g).map((reason) => [reason, code]),
  )
  t.ok(written.length > 15)
  t.strictSame(Object.fromEntries(written), Object.fromEntries(coded))
  t.end()
})

await t.test('docs/ledger.md has every action that a row can have, and no other', (t) => {
  const section = between('docs/ledger.md', '<a id="actions">', '<a id="detail">')
  const cells = [...section.matchAll(/^\| (`[^|]+) \|/gm)].map(([, cell]) => cell).join(' ')
  const documented = named(cells, /`((?:<type>|[a-z_]+)\.[a-z_]+)`/g)
  t.ok(documented.length > 40)
  for (const action of documented) {
    const [subject = '', verb = ''] = action.split('.')
    const text = subject === '<type>' ? `}.${verb}\`` : `'${action}'`
    const parts = new RegExp(
      String.raw`\.\$\{[^}]*'${verb}'|\`${subject}\.\$\{|candidate_\$\{[^}]*'${verb.slice(10)}'`,
    )
    t.ok(CODE.includes(text) || parts.test(CODE), `${action} is written somewhere`)
  }
  const types = ['agent', 'user', 'workload', 'operator']
  const written = [
    ...named(CODE, /\b(?:action: |serviceEntry\(\s*)'([a-z_]+\.[a-z_]+)'/g),
    ...named(CODE, /\baction: `\$\{(?:kind\.)?type\}(\.[a-z_]+)`/g).map((verb) => `<type>${verb}`),
  ]
  t.ok(written.length > 30)
  for (const action of written) {
    const [subject = '', verb = ''] = action.split('.')
    const general = types.includes(subject) ? `<type>.${verb}` : action
    t.ok(
      [action, general].some((one) => documented.includes(one)),
      `docs/ledger.md#actions has ${action}`,
    )
  }
  t.end()
})

await t.test('every route that a page names is there, and each route is on a page', (t) => {
  const paths = [...new Set(ENTRIES.map(({ path }) => path))]
  const fits = (name: string): boolean => {
    const [alternatives, kinds = ''] = /\{([^}]*,[^}]*)\}/.exec(name) ?? []
    if (alternatives !== undefined)
      return kinds.split(',').every((kind) => fits(name.replace(alternatives, kind)))
    const segments = name.split('/')
    return paths.some((path) => {
      const template = path.split('/')
      return (
        segments.length <= template.length &&
        segments.every(
          (segment, at) =>
            segment === template[at] || (template[at]?.startsWith('{') === true && segment !== ''),
        )
      )
    })
  }
  // docs/protocol.md says of it that it is not served.
  const isKnown = (name: string): boolean => name === '/v1/responses/{id}' || fits(name)
  // A tail after `…` or `<` is a tile's, or is left to the reader.
  t.same(unknownOn(/(?<![\w.}~-])(\/v1\/[\w{},:/-]*[\w}])/g, isKnown), [])
  const text = read('docs/protocol.md') + read('docs/operating.md') + read('docs/rehearsal.md')
  const missing = paths.filter((path) =>
    path.split('/').some((segment) => !segment.startsWith('{') && !text.includes(segment)),
  )
  t.same(missing, [])
  t.same(
    unknownOn(
      /`(?:GET |POST )?(\/proxy\/[\w/-]*\w)`/g,
      (path) => CODE.includes(`'${path}'`) || CODE.includes(`'${path}/`),
    ),
    [],
  )
  t.end()
})

await t.test('every verb, option and make target that a page names is there', (t) => {
  const verbs = named(read('scripts/sallyport.ts'), /^ {2}'?([\w-]+)'?: \[/gm)
  t.ok(verbs.length > 20)
  const targets = named(read('Makefile'), /^([\w-]+):/gm)
  const options = named(
    sourcesOf('scripts'),
    /^\s+'?([a-z][\w-]*)'?: \{ ?$|^\s+'?[a-z][\w-]*'?: \{ type: '(?:string|boolean)'/gm,
  )
  const wrong = PAGES.flatMap((page) => {
    const text = read(page)
    const lines = [
      ...[...text.matchAll(/^```(\w*)\n(.*?)^```$/gms)].flatMap(([, language = '', block = '']) =>
        ['', 'sh'].includes(language) ? block.split('\n') : [],
      ),
      ...named(text.replaceAll(/^```.*?^```/gms, ''), /`([^`\n]+)`/g),
    ].map((line) => line.replace(/\s# .*/, ''))
    return lines.flatMap((line) => {
      const [, target] = /^make ([a-z][\w-]*)/.exec(line) ?? []
      const [, verb] =
        /^make sallyport ARGS="([a-z][\w-]*)/.exec(line) ??
        /(?:^|npx )sallyport (?!presence)([a-z][\w-]*)/.exec(line) ??
        []
      return [
        ...(target === undefined || targets.includes(target) ? [] : [`${page}: make ${target}`]),
        ...(verb === undefined || verbs.includes(verb) ? [] : [`${page}: sallyport ${verb}`]),
        ...(verb === undefined ? [] : named(line, /(?<=\s)--([a-z][\w-]*)/g))
          .filter(
            (option) =>
              option !== 'help' &&
              !options.includes(option) &&
              !new RegExp(`^\\s+'?${option}'?: [{o]`, 'm').test(CODE),
          )
          .map((option) => `${page}: sallyport ${verb} --${option}`),
      ]
    })
  })
  t.same(wrong, [])
  t.end()
})

await t.test('a number that a page states of a limit is the one that the code has', (t) => {
  for (const { page, says, is } of LIMITS) {
    const found = [...read(page).replaceAll(/\s+/g, ' ').matchAll(says)]
    if (found.length === 0) t.fail(`${page} no longer says ${says}: change its row, or take it out`)
    for (const [sentence, ...numbers] of found) t.same(numbers.map(numberOf), is, `${page}: ${sentence}`)
  }
  t.end()
})

await t.test('a page that lists the words of a closed list has all of them', (t) => {
  const union = (file: string, type: string): readonly string[] =>
    named(
      new RegExp(String.raw`type ${type} =([^\n]*\n(?: +\|[^\n]*\n)*)`).exec(read(file))?.[1] ?? '',
      /'(\w+)'/g,
    )
  const words = (text: string): readonly string[] => named(text, /`([a-z_]+)`/g)
  const ledger = read('docs/ledger.md').replaceAll(/\s+/g, ' ')
  const sentence = (from: RegExp): string => from.exec(ledger)?.[0] ?? ''
  const doors = union('plugins/operators/actor.ts', 'AuthenticationMethod')
  const readiness = between('docs/protocol.md', '<a id="readiness">', '<a id="metrics">')
  const lists: readonly (readonly [list: string, page: readonly string[], code: readonly string[]])[] = [
    [
      'ending',
      words(sentence(/(?<=`ending` is ).*?(?=\. `via` is)/)),
      union('proxy/http/send.ts', 'EndReason'),
    ],
    // The token for metrics changes nothing.
    ['via', words(sentence(/(?<=\. `via` is )[^(]+/)), doors.filter((door) => door !== 'metrics_token')],
    [
      'tokens_unknown',
      named(between('docs/ledger.md', '<a id="tokens-unknown">', '<a id="attempts">'), /^\| `(\w+)` \|/gm),
      union('proxy/llm/dialects/stated-usage.ts', 'TokensUnknown'),
    ],
    [
      'checks of /ready',
      named(readiness, /"(\w+)": "(?:ok|low|late|stopped|off|losing)"/g),
      named(
        /interface ReadinessChecks \{(.*?)\n\}/s.exec(read('proxy/http/health.ts'))?.[1] ?? '',
        /readonly (\w+)/g,
      ),
    ],
    [
      'faults of handshakes',
      words(between('docs/operating.md', 'handshakes that were ended:', '## Identities')),
      [
        ...union('proxy/tls/doorkeeper.ts', 'HandshakeFault'),
        ...union('proxy/tls/client-flight.ts', 'FlightFault'),
      ],
    ],
    [
      'two_person',
      named(between('docs/operators.md', 'two_person: [', ']'), /(\w+)(?=[,\]]|$)/g),
      TWO_PERSON_KINDS,
    ],
  ]
  for (const [list, page, code] of lists) t.strictSame(new Set(page), new Set(code), list)

  const roles = Object.entries<readonly string[]>(OPERATOR_SETS)
  const [head = '', ...rows] = between(
    'docs/operators.md',
    '| Capability | Opens',
    '\n- `admin.enroll`',
  ).split('\n')
  t.same(
    head
      .split('|')
      .slice(3, -1)
      .map((cell) => cell.trim()),
    roles.map(([role]) => role),
  )
  const held = new Map(roles.map(([role]) => [role, new Set<string>()]))
  for (const row of rows.filter((line) => line.startsWith('| `'))) {
    const [, capability = '', , ...cells] = row.split('|')
    for (const [at, [role]] of roles.entries()) {
      if (cells[at]?.includes('●')) held.get(role)?.add(capability.replaceAll(/[` ]/g, ''))
    }
  }
  for (const [role, capabilities] of roles) t.strictSame(held.get(role), new Set(capabilities), role)
  t.end()
})

await t.test('what a page says is not there is not there, and what it rests on is', (t) => {
  const methods = read('proxy/mcp/protocol/methods.ts')
  const served = (method: string, path: string): boolean =>
    ENTRIES.some((entry) => entry.method === method && entry.path === path)
  const absent: readonly (readonly [page: string, says: RegExp, so: boolean])[] = [
    [
      'SECURITY.md',
      /There is no rate limit per principal/,
      !/rate_?-?limit/i.test(read('proxy/pipelines.ts')),
    ],
    [
      'SECURITY.md',
      /leaves of a \[tree whose checkpoints are signed\]/,
      CODE.includes("'/v1/audit/checkpoint'"),
    ],
    ['docs/ledger.md', /Once a second, while rows come, one process appends/, CODE.includes("'seal-ledger'")],
    ['docs/ledger.md', /On PostgreSQL each process opens a stream/, CODE.includes('audit_streams')],
    ['docs/mcp.md', /There is no GET stream \(405\)/, !served('GET', '/v1/mcp')],
    ['docs/mcp.md', /`subscriptions\/listen` is not served/, !methods.includes('subscriptions/listen')],
  ]
  for (const [page, says, so] of absent) {
    t.match(read(page).replaceAll(/\s+/g, ' '), says, `${page} says so still; if not, take its row out`)
    t.ok(so, `${page} says ${says}, and the code does not`)
  }
  // A deployment has several processes on PostgreSQL, and none below another.
  t.same(
    PAGES.filter((page) => /\b(?:worker processes|each worker|workers of the gateway)\b/i.test(read(page))),
    [],
  )
  t.end()
})

await t.test('every key of an operator’s file that a page shows is in its schema', (t) => {
  let files = 0
  for (const page of PAGES) {
    for (const [, text = ''] of read(page).matchAll(/^```yaml\n(.*?)^```$/gms)) {
      const name = /^plugin: (\w+)/m.exec(text)?.[1] ?? /^# plugins\/config\/\d\d-(\w+)\.yaml/.exec(text)?.[1]
      if (name === undefined) continue
      files += 1
      const schema = JSON.parse(read(`docs/schema/${name}.schema.json`))
      t.same(unknownKeys(parseYaml(text), schema, ''), [], `${page}: ${name}`)
    }
  }
  t.ok(files > 6, `${files} files were read`)
  t.end()
})

/** The keys of a value that no alternative of its schema has, by their paths. */
function unknownKeys(value: unknown, schema: Json, path: string): readonly string[] {
  const alternatives: readonly Json[] = schema.anyOf ?? schema.oneOf ?? [schema]
  const found = alternatives.map((one) => keysBeyond(value, one, path))
  return found.toSorted((a, b) => a.length - b.length)[0] ?? []
}

function keysBeyond(value: unknown, schema: Json, path: string): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((item) => unknownKeys(item, schema.items ?? {}, `${path}[]`))
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([key, member]) => {
    const inner = schema.properties?.[key] ?? (schema.additionalProperties || undefined)
    return inner === undefined && schema.properties
      ? [`${path}.${key}`]
      : unknownKeys(member, inner ?? {}, `${path}.${key}`)
  })
}
