// biome-ignore-all lint/suspicious/noTemplateCurlyInString: references of operator files are what is tested
import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { loadConfiguration } from '../../../proxy/wiring/configuration.ts'
import { REASONS_PAGE, reasonsPage, SCHEMA_DIRECTORY, schemaFiles } from '../../../scripts/write-schemas.ts'
import { copyShipped, problems, SHIPPED } from '../../support/plugins/shipped-files.ts'

await t.test('§8 the shipped files work with an empty environment', async (t) => {
  const { dpopMode, pin, audit, llm, checks, files, digest } = await loadConfiguration(SHIPPED, {})
  t.equal(dpopMode, 'optional')
  t.same(pin, { rotation_grace_hours: 48, trust_bundles: {} })
  t.same(audit, { queue_limit: 8192 })
  t.equal(llm.default_provider, 'openai')
  t.match(llm.providers, [
    { name: 'openai', base_url: 'https://api.openai.com/v1', api_key: '', auth: 'bearer' },
    { name: 'anthropic', base_url: 'https://api.anthropic.com/v1', api_key: '', auth: 'api_key' },
  ])
  t.same(checks, [])
  t.same(
    files.map(({ file }) => file),
    [
      '10-pin.yaml',
      '20-dpop.yaml',
      '30-capability.yaml',
      '40-audit.yaml',
      '50-llm.yaml',
      '55-prices.yaml',
      '60-mcp.yaml',
      '65-people.yaml',
      '70-operators.yaml',
    ],
  )
  t.match(digest, /^[0-9a-f]{64}$/)
})

await t.test('§8 keys and base URLs of providers come from the environment', async (t) => {
  const env = { ANTHROPIC_BASE_URL: 'http://127.0.0.1:1', ANTHROPIC_API_KEY: 'sk-canary' }
  const { llm, digest } = await loadConfiguration(SHIPPED, env)
  t.match(llm.providers[1], { base_url: 'http://127.0.0.1:1/v1', api_key: 'sk-canary' })
  t.equal(digest, (await loadConfiguration(SHIPPED, {})).digest, 'a key is not part of the digest')
})

await t.test(
  "an operator's own check is loaded where it stands, and its code is part of the digest",
  async (t) => {
    const directory = copyShipped(t.testdir({}))
    const bare = await loadConfiguration(directory, {})
    const module = (name: string) =>
      `export const plugin = ({ n }) => ({ name: '${name}' + n, needs: ['call'], admit() {} })`
    writeFileSync(join(directory, 'mine.js'), module('mine-'))
    t.equal(
      (await loadConfiguration(directory, {})).digest,
      bare.digest,
      'a module that no file names is nothing',
    )
    writeFileSync(join(directory, '36-b.yaml'), 'plugin: ./mine.js\nn: 2\n')
    writeFileSync(join(directory, '35-a.yaml'), 'plugin: ./mine.js\nn: 1\n')
    const one = await loadConfiguration(directory, {})
    t.same(
      one.checks.map(({ check }) => check.name),
      ['mine-1', 'mine-2'],
    )
    writeFileSync(join(directory, 'mine.js'), module('changed-'))
    const two = await loadConfiguration(directory, {})
    t.same(
      two.checks.map(({ check }) => check.name),
      ['changed-1', 'changed-2'],
    )
    t.equal(new Set([bare.digest, one.digest, two.digest]).size, 3)
  },
)

await t.test('the example module works as its comment says', async (t) => {
  const directory = copyShipped(t.testdir({}))
  const example = join(SHIPPED, 'examples/allow-models.ts')
  writeFileSync(join(directory, '35-allow.yaml'), `plugin: ${example}\nmodels:\n  acme::intern: [small]\n`)
  const [{ check } = {}] = (await loadConfiguration(directory, {})).checks
  t.equal(check?.name, 'allow-models')
  const call = (id: string, model: string) => {
    const principal = { id }
    // The facts that this check declares, and the grant, which says who the principal is at the gate.
    const facts = { principal, call: { model }, granted: { principal } }
    return check?.admit(facts as unknown as Parameters<typeof check.admit>[0])
  }
  t.same(await call('acme::intern', 'small'), {})
  t.same(await call('acme::other', 'large'), {})
  await t.rejects(Promise.resolve(call('acme::intern', 'large')), {
    message: /^acme::intern may not call the model large/,
  })
  writeFileSync(join(directory, '35-allow.yaml'), `plugin: ${example}\nmodel: {}\n`)
  t.strictSame(await problems(directory), [
    `35-allow.yaml:1:9: plugin(options) of ${example} threw Error: unknown key model: only models is known`,
  ])
})

await t.test(
  'a wrong order, a missing plugin and a broken module are told together, each at its place',
  async (t) => {
    const directory = copyShipped(
      t.testdir({
        'm.js': 'export const x = 1',
        'n.js': 'export const plugin = () => ({ name: "n", needs: [], gives: ["granted"], admit() {} })',
      }),
    )
    renameSync(join(directory, '30-capability.yaml'), join(directory, '05-capability.yaml'))
    rmSync(join(directory, '20-dpop.yaml'))
    rmSync(join(directory, '50-llm.yaml'))
    writeFileSync(join(directory, '35-m.yaml'), '# mine\nplugin:  ./m.js\n')
    writeFileSync(join(directory, '36-n.yaml'), 'plugin: ./n.js\n')
    writeFileSync(join(directory, '37-gone.yaml'), 'plugin: ./gone.js\n')
    t.strictSame(await problems(directory), [
      '35-m.yaml:2:10: ./m.js does not export a function named plugin',
      '36-n.yaml:1:9: plugin(options) of ./n.js gives facts, but a check of your own may only refuse: remove gives',
      `37-gone.yaml:1:9: module ${directory}/gone.js cannot be read (ENOENT)`,
      '20-dpop.yaml:1:1: plugin dpop is missing: restore 20-dpop.yaml; pin, dpop, capability and audit can be tuned but never removed',
      '05-capability.yaml:6:9: capability needs principal, which pin gives only later, in 10-pin.yaml; rename one so that pin comes first',
      '50-llm.yaml:1:1: the provider list is missing: restore 50-llm.yaml, with providers: [] where there are none',
    ])
  },
)

await t.test('§8 there is one provider list', async (t) => {
  const directory = copyShipped(t.testdir({ '51-llm.yaml': 'plugin: llm\n' }))
  t.strictSame(await problems(directory), [
    '51-llm.yaml:1:9: plugin llm is there twice, in 50-llm.yaml and in 51-llm.yaml: keep one',
  ])
})

await t.test('§8 a mistake in the provider list is told at its line and column', async (t) => {
  const directory = copyShipped(t.testdir({}))
  const text = [
    'plugin: llm',
    'default_provider: nobody',
    'providers:',
    '  - name: openai',
    '    dialect: openia',
    '    base_url: ${env:GONE}',
    '    api_keys: x',
  ].join('\n')
  writeFileSync(join(directory, '50-llm.yaml'), text)
  t.strictSame((await problems(directory)).sort(), [
    '50-llm.yaml:5:14: providers[0].dialect must be openai or anthropic, got "openia"',
    '50-llm.yaml:6:15: environment variable GONE is not set: set it, or give a default with ${env:GONE:-default}',
    '50-llm.yaml:7:5: unknown key "api_keys" in providers[0]: did you mean api_key?',
  ])
  writeFileSync(join(directory, '50-llm.yaml'), 'plugin: llm\ndefault_provider: nobody\n')
  t.strictSame(await problems(directory), [
    '50-llm.yaml:2:19: default_provider names no provider of this file',
  ])
  const openai = ['plugin: llm', 'providers:', '  - name: openai', '    dialect: openai']
  const lists = [
    'pass_headers: [x-title, x_admin_secret]',
    'pass_query: [api_key]',
    'pass_answer_headers: [te]',
  ]
  openai.push(...['base_url: https://a.example/v1', ...lists].map((line) => `    ${line}`))
  writeFileSync(join(directory, '50-llm.yaml'), openai.join('\n'))
  t.strictSame(await problems(directory), [
    '50-llm.yaml:6:29: providers[0].pass_headers[1] is a header of this gateway itself',
    '50-llm.yaml:7:18: providers[0].pass_query[0] may carry a credential: a credential goes into api_key or headers',
    '50-llm.yaml:8:27: providers[0].pass_answer_headers[0] belongs to the connection, or rules what others do with the answer',
  ])
})

await t.test(
  '§8 the published JSON Schemas are those of the code, and each shipped file names its own',
  async (t) => {
    const expected = schemaFiles()
    t.same(readdirSync(SCHEMA_DIRECTORY).sort(), [...expected.keys()].sort())
    for (const [file, text] of expected) {
      t.equal(readFileSync(join(SCHEMA_DIRECTORY, file), 'utf8'), text, `run make schemas: ${file}`)
    }
    for (const { file, plugin } of (await loadConfiguration(SHIPPED, {})).files) {
      const [first] = readFileSync(join(SHIPPED, file), 'utf8').split('\n')
      t.equal(first, `# yaml-language-server: $schema=../../docs/schema/${plugin}.schema.json`)
    }
  },
)

await t.test('a setting that is another URL than it should be is refused with a sentence', async (t) => {
  const documents = 'https://login.example/.well-known/openid-configuration'
  const issuer = (url: string) =>
    `plugin: operators\noidc: { issuer: "${url}", client_id: a, client_secret: b, map: {} }\n`
  const web = /must be an https URL, or an http URL of this machine, without credentials, query or fragment/
  const page = /must be one origin in full, such as|is no origin/
  const origins = (...urls: string[]) => `plugin: mcp\nallowed_origins: ${JSON.stringify(urls)}\n`
  for (const [file, text, said] of [
    ['70-operators.yaml', issuer(documents), /must be the issuer, .* and not the address of the document/],
    ['70-operators.yaml', issuer('https://u:p@login.example'), web],
    ['70-operators.yaml', issuer('https://login.example/?tenant=a'), web],
    ['70-operators.yaml', issuer('https://login.example/#a'), web],
    ['60-mcp.yaml', origins('https://app.example/'), page],
    ['60-mcp.yaml', origins('https://app.example?a'), page],
    ['60-mcp.yaml', origins('https://app.example#a'), page],
    ['60-mcp.yaml', origins('https://u@app.example'), page],
    ['60-mcp.yaml', origins('https://:80'), page],
  ] as const) {
    const directory = copyShipped(t.testdir({}))
    writeFileSync(join(directory, file), text)
    const [problem = '', ...more] = await problems(directory)
    t.match(problem, said, text)
    t.same(more, [])
  }
  const directory = copyShipped(t.testdir({}))
  writeFileSync(join(directory, '60-mcp.yaml'), origins('https://APP.example:443', 'http://[::1]:3000'))
  writeFileSync(join(directory, '70-operators.yaml'), issuer('https://LOGIN.example:443/tenant/'))
  await t.resolves(loadConfiguration(directory, {}), 'another case, and a port that goes without saying')
})

await t.test('the published list of reasons is that of the code', (t) => {
  t.equal(readFileSync(REASONS_PAGE, 'utf8'), reasonsPage(), 'run node scripts/write-schemas.ts')
  t.end()
})
