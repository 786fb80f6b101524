// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of operator files are what is tested
import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { z } from 'zod'
import { auditOptions } from '../../../plugins/audit/options.ts'
import { capabilityOptions } from '../../../plugins/capability.ts'
import { dpopOptions } from '../../../plugins/dpop/options.ts'
import { ConfigError } from '../../../plugins/operator-files/config-error.ts'
import { expandReferences } from '../../../plugins/operator-files/expand.ts'
import { readOperatorFiles } from '../../../plugins/operator-files/files.ts'
import { pinOptions } from '../../../plugins/pin/options.ts'

const list = z.strictObject({
  items: z
    .array(
      z.strictObject({
        name: z.string().min(2),
        on: z.boolean().default(false),
        size: z.number().optional(),
      }),
    )
    .max(2)
    .default([]),
  rule: z
    .union([z.literal('off'), z.strictObject({ few: z.number().min(1) })], {
      error: 'must be off, or a rule',
    })
    .optional(),
  headers: z.record(z.string().regex(/^[a-z-]+$/, 'must be lower case'), z.string()).default({}),
})

const schemas = new Map<string, z.ZodType>([
  ['pin', pinOptions],
  ['dpop', dpopOptions],
  ['capability', capabilityOptions],
  ['audit', auditOptions],
  ['list', list],
])

const read = (directory: string, env: Record<string, string> = {}) =>
  readOperatorFiles({ directory, schemas, checks: new Set(['list']), env })

/** The problems of a directory as an operator reads them, without the directory. */
async function problems(directory: string, env: Record<string, string> = {}): Promise<string[]> {
  const error: unknown = await read(directory, env).then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof ConfigError)) throw error ?? new Error('the files were accepted')
  return error.message.split('\n').map((line) => line.replace(directory, '').replace(/^\//, ''))
}

await t.test('§8 files are read in file-name order, with the defaults of what they leave out', async (t) => {
  const directory = t.testdir({
    '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: required\n',
    '10-pin.yml': '# a comment\nplugin: pin\n',
    'README.md': 'not read',
    '.15-hidden.yaml': 'not: read',
    '15-old.yaml.disabled': 'not: read',
    examples: { '11-inner.yaml': 'not: read' },
  })
  const { files } = await read(directory)
  const told = files.map(({ written, has: ___, digest: _, positionOf: __, ...file }) => ({
    ...file,
    plugin: written(['plugin']),
  }))
  t.same(
    files.map(({ has, options }) => Object.keys(options).filter((name) => has([name]))),
    [[], ['egress_dpop_mode']],
    'a default stands nowhere',
  )
  t.strictSame(told, [
    {
      plugin: 'pin',
      file: '10-pin.yml',
      options: { rotation_grace_hours: 48, trust_bundles: {} },
      shadow: false,
      position: { line: 2, column: 9 },
    },
    {
      plugin: 'dpop',
      file: '20-dpop.yaml',
      options: { egress_dpop_mode: 'required', no_downgrade: false },
      shadow: false,
      position: { line: 1, column: 9 },
    },
  ])
})

await t.test('§8 each mistake is told at its own line and column', async (t) => {
  const cases: readonly (readonly [name: string, text: string, expected: string])[] = [
    ['a file that is not YAML', 'plugin: pin\nrotation: [1\n', '3:1: Flow sequence'],
    ['a tab', 'plugin: pin\nnested:\n\tx: 1\n', '3:1: Tabs are not allowed'],
    ['a key that stands twice', 'plugin: pin\nplugin: dpop\n', '2:1: Map keys must be unique'],
    ['a second document', 'plugin: pin\n---\nplugin: dpop\n', '2:1: Source contains multiple documents'],
    ['a tag', 'plugin: pin\nrotation_grace_hours: !hours 3\n', '2:23: Unresolved tag: !hours'],
    ['an empty file', '', '1:1: must be a map of options'],
    ['a list', '\n- plugin: pin\n', '2:1: must be a map of options'],
    ['no plugin', '# x\nrotation_grace_hours: 3\n', '2:1: must begin with plugin: NAME'],
    ['a plugin that is no name', 'plugin: [pin]\n', '1:9: must begin with plugin: NAME'],
    ['an unknown plugin', '# x\nplugin: pni\n', '2:9: unknown plugin "pni": did you mean pin?'],
    ['a plugin named by a reference', 'plugin: ${env:P}\n', '1:9: unknown plugin "${env:P}"'],
    [
      'an unknown key',
      'plugin: pin\nrotation_grace_hour: 3\n',
      '2:1: unknown key "rotation_grace_hour" in plugin pin: did you mean rotation_grace_hours?',
    ],
    [
      'a long key, of which the beginning is shown',
      `plugin: pin\n? ${'x'.repeat(2_000)}\n: 3\n`,
      `2:3: unknown key "${'x'.repeat(159)}… in plugin pin: did you mean`,
    ],
    [
      'a long value, of which the beginning is shown',
      `plugin: dpop\negress_dpop_mode: ${'x'.repeat(2_000)}\n`,
      `2:19: egress_dpop_mode must be off, optional or required, got "${'x'.repeat(159)}…`,
    ],
    [
      'a key where none is known',
      'plugin: capability\nx: 1\n',
      '2:1: unknown key "x" in plugin capability: plugin capability takes no options',
    ],
    ['__proto__', 'plugin: pin\n__proto__: {a: 1}\n', '2:1: unknown key "__proto__"'],
    [
      'a wrong type',
      'plugin: pin\nrotation_grace_hours: soon\n',
      '2:23: rotation_grace_hours must be a number, got "soon"',
    ],
    [
      'a fraction',
      'plugin: pin\nrotation_grace_hours: 1.5\n',
      '2:23: rotation_grace_hours must be an integer, got "1.5"',
    ],
    [
      'nothing for a value',
      'plugin: pin\nrotation_grace_hours:\n',
      '2:22: rotation_grace_hours must be a number',
    ],
    [
      'too much',
      'plugin: pin\nrotation_grace_hours: 721\n',
      '2:23: rotation_grace_hours must be at most 720',
    ],
    ['too little', 'plugin: audit\nqueue_limit: 63\n', '2:14: queue_limit must be at least 64'],
    [
      'an unknown mode',
      'plugin: dpop\negress_dpop_mode: "of"\n',
      '2:19: egress_dpop_mode must be off, optional or required, got "of"',
    ],
    [
      'a yes of YAML 1.1',
      'plugin: list\nitems:\n  - name: aa\n    on: yes\n',
      '4:9: items[0].on must be true or false, got "yes"',
    ],
    ['a missing key', 'plugin: list\nitems:\n  - on: true\n', '3:5: items[0].name is missing'],
    [
      'a short string',
      'plugin: list\nitems: [{name: a}]\n',
      '2:16: items[0].name must be at least 2 characters long',
    ],
    [
      'a long list',
      'plugin: list\nitems: [{name: aa}, {name: bb}, {name: cc}]\n',
      '2:8: items must have at most 2 entries',
    ],
    [
      'an unknown key inside',
      'plugin: list\nitems:\n  - name: aa\n    nmae: bb\n',
      '4:5: unknown key "nmae" in items[0]: did you mean name?',
    ],
    ['another word for a rule', 'plugin: list\nrule: on\n', '2:7: rule must be off, or a rule'],
    ['a wrong value in a rule', 'plugin: list\nrule: {few: x}\n', '2:13: rule.few must be a number, got "x"'],
    ['a small value in a rule', 'plugin: list\nrule: {few: 0}\n', '2:13: rule.few must be at least 1'],
    ['nothing in a rule', 'plugin: list\nrule: {}\n', '2:7: rule.few is missing'],
    [
      'an unknown key in a rule',
      'plugin: list\nrule: {few: 1, feww: 2}\n',
      '2:16: unknown key "feww" in rule: did you mean few?',
    ],
    [
      'a wrong key of a map',
      'plugin: list\nheaders:\n  ok: x\n  NO: y\n',
      '4:3: "NO": the key must be lower case',
    ],
    [
      'a value behind an alias',
      'plugin: list\nitems:\n  - &a {name: aa, on: 3}\nheaders: {x: *b}\n',
      '4:14: *b refers to no &b above it',
    ],
    [
      'a value at its anchor',
      'plugin: list\nitems:\n  - &a {name: aa, on: 3}\n',
      '3:23: items[0].on must be true or false',
    ],
    [
      'an unset variable',
      'plugin: list\nheaders:\n  x: a${env:GONE}\n',
      '3:6: environment variable GONE is not set',
    ],
    [
      'an unset variable, whatever its type',
      'plugin: pin\nrotation_grace_hours: ${env:GONE}\n',
      '2:23: environment variable GONE is not set',
    ],
    [
      'a missing file',
      'plugin: list\nheaders:\n  x: ${file:/gone/key}\n',
      '3:6: /gone/key cannot be read (ENOENT)',
    ],
  ]
  for (const [name, text, expected] of cases) {
    await t.test(name, async (t) => {
      const found = await problems(t.testdir({ '10-x.yaml': text }))
      t.equal(found.length, 1, { found })
      t.ok(found[0]?.startsWith(`10-x.yaml:${expected}`), { found })
    })
  }
})

await t.test('§8 the mistakes of all files are told at once', async (t) => {
  const directory = t.testdir({
    '10-pin.yaml': 'plugin: pin\na: 1\nrotation_grace_hours: x\n',
    '20-dpop.yaml': 'plugin: dpop\n',
    '30-capability.yaml': 'plugin: [\n',
    'audit.yaml': 'plugin: audit\n',
  })
  const places = (await problems(directory)).map((line) => line.split(': ')[0] ?? '')
  t.strictSame(places.sort(), [
    '10-pin.yaml:2:1',
    '10-pin.yaml:3:23',
    '30-capability.yaml:2:1',
    'audit.yaml:1:1',
  ])
})

await t.test('§8 a misnamed file is an error, not silence', async (t) => {
  for (const name of ['pin.yaml', '1-pin.yaml', '10_pin.yaml', '10-Pin.yaml', '10-pin.YAML']) {
    const directory = t.testdir({ [name]: 'plugin: pin\n' })
    t.match(await problems(directory), [`${name}:1:1: is not named NN-name.yaml`])
  }
})

await t.test('threat 34: a billion laughs are refused', async (t) => {
  const levels = Array.from(
    { length: 9 },
    (_, level) => `  l${level + 1}: &l${level + 1} [${`*l${level}, `.repeat(9)}]`,
  )
  const text = `plugin: list\nheaders:\n  l0: &l0 [ha, ha]\n${levels.join('\n')}\n`
  t.match(await problems(t.testdir({ '10-x.yaml': text })), [
    /^10-x\.yaml:1:1: cannot be read: Excessive alias count/,
  ])
})

await t.test('threat 34: what everybody may write to is refused', async (t) => {
  const directory = t.testdir({ '10-pin.yaml': 'plugin: pin\n' })
  chmodSync(join(directory, '10-pin.yaml'), 0o646)
  t.strictSame(await problems(directory), ['10-pin.yaml:1:1: everybody may write to this file: chmod o-w it'])
  chmodSync(join(directory, '10-pin.yaml'), 0o664)
  t.equal((await read(directory)).files.length, 1)
  chmodSync(directory, 0o1777)
  t.strictSame(await problems(directory), [':1:1: everybody may write to this directory: chmod o-w it'])
})

await t.test(
  'F-31 a missing directory, a directory for a file and text that is not UTF-8 are refused',
  async (t) => {
    const directory = t.testdir({ '10-pin.yaml': {} })
    t.strictSame(await problems(directory), ['10-pin.yaml:1:1: is not a regular file'])
    rmSync(join(directory, '10-pin.yaml'), { recursive: true })
    writeFileSync(join(directory, '10-pin.yaml'), Buffer.from('plugin: pin # \xff\n', 'latin1'))
    t.strictSame(await problems(directory), ['10-pin.yaml:1:1: is not UTF-8 text'])
    t.match(await problems(join(directory, 'gone')), [
      ':1:1: the directory of plugin files cannot be read (ENOENT)',
    ])
  },
)

await t.test('§8 the digest covers names and bytes, and never what references expand to', async (t) => {
  const text = 'plugin: list\nheaders: {x: "${env:KEY}"}\n'
  const directory = t.testdir({ '10-x.yaml': text })
  const first = await read(directory, { KEY: 'one' })
  const second = await read(directory, { KEY: 'two' })
  t.match(first.digest, /^[0-9a-f]{64}$/)
  t.equal(second.digest, first.digest)
  t.strictSame(second.files[0]?.options, { items: [], headers: { x: 'two' } })
  writeFileSync(join(directory, '10-x.yaml'), `${text}# a comment\n`)
  const changed = await read(directory, { KEY: 'one' })
  t.not(changed.digest, first.digest)
  rmSync(join(directory, '10-x.yaml'))
  writeFileSync(join(directory, '11-x.yaml'), text)
  t.not((await read(directory, { KEY: 'one' })).digest, first.digest)
})

await t.test('an expanded secret never stands in a message', async (t) => {
  const directory = t.testdir({ '10-dpop.yaml': 'plugin: dpop\negress_dpop_mode: ${env:KEY}\n' })
  const [line] = await problems(directory, { KEY: 'sk-canary' })
  t.equal(line, '10-dpop.yaml:2:19: egress_dpop_mode must be off, optional or required, got "${env:KEY}"')
})

await t.test('§8 references expand inside values and nothing else does', async (t) => {
  const secret = join(t.testdir({ key: 'from-file\n\n' }), 'key')
  chmodSync(secret, 0o640)
  const env = { A: 'a', EMPTY: '', NESTED: '${env:A}' }
  const cases: readonly (readonly [string, string])[] = [
    ['${env:A}', 'a'],
    ['x${env:A}y${env:A}', 'xaya'],
    ['${env:EMPTY}', ''],
    ['${env:EMPTY:-b}', 'b'],
    ['${env:GONE:-}', ''],
    ['${env:GONE:-https://x/v1:-y}', 'https://x/v1:-y'],
    ['${env:A:-b}', 'a'],
    ['${env:NESTED}', '${env:A}'],
    [`\${file:${secret}}`, 'from-file\n'],
    ['$${env:A}', '${env:A}'],
    ['$$', '$'],
    ['$A ${A} $ {env:A}', '$A ${A} $ {env:A}'],
  ]
  for (const [text, expected] of cases) t.equal(expandReferences(text, env), expected, text)
})

await t.test('§8 a reference that cannot be expanded is refused', async (t) => {
  const directory = t.testdir({ key: 'k' })
  const key = join(directory, 'key')
  chmodSync(key, 0o644)
  const cases: readonly (readonly [string, RegExp])[] = [
    ['${env:GONE}', /GONE is not set/],
    ['${env:}', /does not name an environment variable/],
    ['${env:A B}', /does not name an environment variable/],
    ['${env:A', /is not understood/],
    ['${env:A:-${env:B}}', /is not understood/],
    ['${evn:A}', /is not understood/],
    ['${file:key}', /must name an absolute path/],
    [`\${file:${key}}`, /has mode 0644 and is open to others/],
    [`\${file:${directory}}`, /is not a regular file/],
  ]
  for (const [text, message] of cases) t.throws(() => expandReferences(text, {}), { message }, text)
})

await t.test('what a file says to its check is the same whether that watches or judges', async (t) => {
  const files = ['plugin: list\nitems: []\n', 'plugin: list\nshadow: true\nitems: []\n', 'plugin: list\n']
  const directory = t.testdir(Object.fromEntries(files.map((text, at) => [`3${at}-list.yaml`, text])))
  const [judges, watches, other] = (await read(directory)).files.map(({ digest }) => digest)
  t.equal(watches, judges)
  t.not(other, judges)
})

await t.test('a check may only watch; what is no check may not, and shadow is true or false', async (t) => {
  const watching = t.testdir({
    '35-list.yaml': 'plugin: list\nshadow: true\n',
    '36-own.yaml': 'plugin: ./own.ts\nshadow: true\nlimit: 3\n',
    '37-other.yaml': 'plugin: ./own.ts\nshadow: false\n',
  })
  t.match(
    (await read(watching)).files.map(({ shadow, options }) => ({ shadow, options })),
    [
      { shadow: true, options: { items: [] } },
      { shadow: true, options: { limit: 3, shadow: undefined } },
      { shadow: false, options: {} },
    ],
    'and a module is not told',
  )
  const wrong = t.testdir({
    '10-pin.yaml': 'plugin: pin\nshadow: true\n',
    '35-list.yaml': 'plugin: list\nshadow: maybe\n',
    '36-own.yaml': 'plugin: ./own.ts\nshadow: 1\n',
  })
  t.match(await problems(wrong), [
    /10-pin.yaml:2:1: unknown key "shadow"/,
    '35-list.yaml:2:9: shadow must be true or false',
    '36-own.yaml:2:9: shadow must be true or false',
  ])
})
