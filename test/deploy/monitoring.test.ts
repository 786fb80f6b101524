import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { REFUSAL_REASONS } from '../../plugins/refusal.ts'
import { FileDescriptors } from '../../proxy/http/descriptors.ts'
import { createMetrics } from '../../proxy/telemetry/metrics.ts'
import { without } from '../support/certs/openssl.ts'
import { ROOT } from '../support/deploy/package-tree.ts'
import { readYaml } from '../support/deploy/yaml.ts'
import { CHAT, type Json, testGateway } from '../support/gateway.ts'

const DIRECTORY = join(ROOT, 'deploy/prometheus')
const rules: readonly Json[] = readYaml(join(DIRECTORY, 'alerts.yaml')).groups.flatMap(
  (group: Json) => group.rules,
)
const dashboard = JSON.parse(readFileSync(join(ROOT, 'deploy/grafana/sallyport.json'), 'utf8'))
const panels: readonly Json[] = dashboard.panels.filter(({ type }: Json) => type !== 'row')
const queries = [
  ...rules.map(({ alert, expr }) => [alert, expr]),
  ...panels.flatMap(({ title, targets }) => targets.map(({ expr }: Json) => [title, expr])),
  ['instance', dashboard.templating.list[1].query.query],
]

/** The metrics that a query names, and the labels that it names of each. */
const namedIn = (query: string) =>
  [...query.matchAll(/\b((?:sallyport|nodejs|process)_\w+)(?:\{([^}]*)\})?/g)].map(
    ([, name = '', labels = '']) => ({
      name: name.replace(/_(bucket|sum|count)$/, ''),
      labels: [...labels.matchAll(/(\w+)=/g)]
        .map(([, label]) => label)
        .filter((label) => label !== 'instance'),
    }),
  )

t.test('every query names metrics and labels that a running gateway has', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  await gateway.call(null, 'POST', '/v1/chat/completions', { body: CHAT })
  const { text } = await gateway.admin('GET', '/metrics')
  const known = new Set([...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name))
  for (const [where, query] of queries) {
    const named = namedIn(query)
    if (!query.startsWith('up{') && !query.includes('sum(up{')) t.not(named.length, 0, where)
    for (const { name, labels } of named) {
      t.ok(known.has(name), `${where}: ${name}`)
      const sample = new RegExp(`^${name}(?:_bucket)?\\{(.*)\\} `, 'm').exec(text)?.[1]
      // One that has no sample yet says no label.
      if (sample !== undefined) for (const label of labels) t.match(sample, `${label}="`, `${where}: ${name}`)
    }
  }
  t.match(text, /^sallyport_audit_failing 0$/m)
  t.match(text, /^sallyport_database_reachable 1$/m)
  t.match(text, /^sallyport_notices_listening 1$/m)
  for (const [name, years] of [
    ['root', 10],
    ['intermediate', 5],
    ['server', 0],
  ] as const) {
    const seconds = Number(
      new RegExp(`^sallyport_certificate_not_after_seconds\\{certificate="${name}"\\} (\\d+)$`, 'm').exec(
        text,
      )?.[1],
    )
    t.equal(Math.round((seconds * 1000 - Date.now()) / (365 * 86_400_000)), years, name)
  }
})

t.test('a reason that a query names is one of the gateway’s', (t) => {
  const named = queries.flatMap(([, query]) =>
    [...query.matchAll(/reason=~?"([^"]+)"/g)].map(([, reasons]) => reasons),
  )
  const faults = 'too_many_handshakes|costly_certificate|too_many_certificates|flight_too_long'
  for (const reasons of named.filter((one) => one !== faults)) {
    for (const reason of reasons.split('|')) t.ok(Object.hasOwn(REFUSAL_REASONS, reason), reason)
  }
  t.ok(named.includes(faults))
  t.end()
})

t.test('every alert says how bad it is, what is seen, and which page to open', (t) => {
  const pages = readFileSync(join(ROOT, 'docs/runbooks.md'), 'utf8')
  for (const { alert, labels, annotations } of rules) {
    t.match(labels.severity, /^(critical|warning)$/, alert)
    t.match(annotations.summary, /^\S.{10,120}$/, alert)
    const [, anchor] = /^docs\/runbooks\.md#([\w-]+)$/.exec(annotations.runbook) ?? []
    t.match(pages, `<a id="${anchor}">`, alert)
  }
  t.equal(new Set(rules.map(({ alert }) => alert)).size, rules.length)
  t.end()
})

t.test('the panels of the dashboard stand beside each other', (t) => {
  const cells = new Set<string>()
  for (const { title, gridPos: at, targets, datasource } of panels) {
    t.same(datasource, { type: 'prometheus', uid: `$\{datasource}` }, title)
    t.ok(targets.length > 0 && at.x + at.w <= 24, title)
    for (let x = at.x; x < at.x + at.w; x += 1) {
      for (let y = at.y; y < at.y + at.h; y += 1) {
        t.notOk(cells.has(`${x},${y}`), title)
        cells.add(`${x},${y}`)
      }
    }
  }
  t.end()
})

t.test(
  'promtool takes the rules, and each fires when it should',
  { skip: without('promtool') },
  async (t) => {
    const promtool = (...args: string[]) => spawnSync('promtool', args, { cwd: DIRECTORY, encoding: 'utf8' })
    for (const args of [
      ['check', 'rules', 'alerts.yaml'],
      ['test', 'rules', 'alerts.test.yaml'],
    ]) {
      const { status, stdout, stderr } = promtool(...args)
      t.equal(status, 0, stdout + stderr)
    }
  },
)

t.test('a figure that the database does not give leaves the others where they are', async (t) => {
  const none = (): number => 0
  const { registry } = createMetrics({
    waiting: none,
    owed: none,
    held: none,
    unsealed: () => Promise.resolve(0),
    sealingStopped: () => false,
    archiveAlarm: () => Promise.resolve({ overdue: false, last: null }),
    lateAnchors: () => Promise.resolve(0),
    exportLags: () => Promise.resolve([]),
    brokenExpectations: () => Promise.resolve(0),
    quarantined: () => Promise.reject(new Error('the database is away')),
    unreadable: () => Promise.resolve(3),
    unreadBundles: () => 1,
    diskFree: none,
    diskReserve: none,
    failing: () => true,
    lostLines: () => 0,
    reachable: () => Promise.resolve(false),
    listening: () => false,
    descriptors: new FileDescriptors(false, 9),
    providerStates: () => [],
    limits: async () => [],
    certificates: () => Promise.resolve(new Map([['server', 7]])),
  })
  const text = await registry.metrics()
  t.notMatch(text, /^sallyport_mcp_tools_quarantined \d/m, 'no figure is no sample, and never a 0')
  t.match(text, /^sallyport_mcp_resources_unreadable 3$/m)
  t.match(text, /^sallyport_audit_failing 1$/m)
  t.match(text, /^sallyport_descriptors_limit 9$/m)
  t.match(text, /^sallyport_connections_limit 16$/m)
  t.match(text, /^sallyport_database_reachable 0$/m)
  t.match(text, /^sallyport_notices_listening 0$/m)
  t.match(text, /^sallyport_certificate_not_after_seconds\{certificate="server"\} 7$/m)
})
