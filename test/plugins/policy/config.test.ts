import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { policyOptions } from '../../../plugins/policy/options.ts'
import { loadConfiguration } from '../../../proxy/wiring/configuration.ts'
import { checkConfig } from '../../../scripts/verbs/check-config.ts'
import { policyServer } from '../../support/plugins/policy-server.ts'
import { copyShipped, problems, SHIPPED } from '../../support/plugins/shipped-files.ts'

const WASM = join(import.meta.dirname, '../../support/plugins/policy-fixture/fixture.wasm')

/** The shipped files with a policy among them. */
const withPolicy = (t: Test, text: string, file = '35-policy.yaml'): string =>
  copyShipped(t.testdir({ [file]: text }))

async function load(t: Test, directory: string) {
  const configuration = await loadConfiguration(directory, {})
  t.teardown(configuration.close)
  return configuration
}

const wasm = (rule: string, more = ''): string =>
  `plugin: policy\nengine: opa-wasm\nbundle: ${WASM}\nentrypoint: fixture/${rule}\n${more}`

await t.test(
  'docs/architecture.md the policy stands between capability and audit, beside modules, or not at all',
  async (t) => {
    const directory = withPolicy(t, wasm('yes'))
    writeFileSync(
      join(directory, 'mine.js'),
      'export const plugin = () => ({ name: "mine", needs: [], admit() {} })',
    )
    writeFileSync(join(directory, '36-mine.yaml'), 'plugin: ./mine.js\n')
    const { checks } = await load(t, directory)
    t.same(
      checks.map(({ check }) => check.name),
      ['policy', 'mine'],
    )
    t.same((await load(t, SHIPPED)).checks, [])
  },
)

await t.test(
  'docs/architecture.md a policy before the gate, behind the record, or twice stops the boot',
  async (t) => {
    const rule = 'policy: it must come after capability and before audit'
    t.strictSame(await problems(withPolicy(t, wasm('yes'), '25-policy.yaml')), [
      `25-policy.yaml:1:9: ${rule}; rename 25-policy.yaml so that it comes after 30-capability.yaml`,
      '25-policy.yaml:1:9: policy needs granted, which capability gives only later, in 30-capability.yaml; rename one so that capability comes first',
    ])
    t.strictSame(await problems(withPolicy(t, wasm('yes'), '45-policy.yaml')), [
      `45-policy.yaml:1:9: ${rule}; rename 45-policy.yaml so that it comes before 40-audit.yaml`,
    ])
    const twice = withPolicy(t, wasm('yes'))
    writeFileSync(join(twice, '36-policy.yaml'), wasm('no'))
    t.strictSame(await problems(twice), [
      '36-policy.yaml:1:9: plugin policy is there twice, in 35-policy.yaml and in 36-policy.yaml: keep one',
    ])
  },
)

await t.test(
  'F-31 the digest covers the compiled policy and its data, and no agent that lies elsewhere',
  async (t) => {
    const agent = await policyServer(t)
    const directory = withPolicy(t, wasm('reads_data', 'data: data.json\n'))
    const digestWith = async (data: string): Promise<string> => {
      writeFileSync(join(directory, 'data.json'), data)
      return (await load(t, directory)).digest
    }
    const digests = [await digestWith('{"a":1}'), await digestWith('{"a":2}')]
    t.equal(new Set(digests).size, 2)
    t.equal(await digestWith('{"a":1}'), digests[0])
    const remote = withPolicy(t, `plugin: policy\nengine: opa-http\nurl: ${agent.url}\n`)
    t.match((await load(t, remote)).digest, /^[0-9a-f]{64}$/)
    t.same(agent.asked, [], 'without samples nobody is asked')
  },
)

await t.test('§8 a mistake in the policy file is told at its line and column', async (t) => {
  const told = async (...lines: string[]): Promise<string[]> =>
    (await problems(withPolicy(t, ['plugin: policy', ...lines].join('\n')))).map((one) =>
      one.replace('35-policy.yaml:', ''),
    )
  t.strictSame(await told('engine: opa'), ['2:9: engine must be opa-http or opa-wasm, got "opa"'])
  t.strictSame(await told('engine: opa-http'), ['1:1: url is missing'])
  t.strictSame(await told('engine: opa-wasm'), ['1:1: bundle is missing'])
  t.strictSame(await told('engine: opa-wasm', 'bundle: x', 'url: http://a'), [
    '4:6: url is an option of engine opa-http only',
  ])
  t.strictSame(await told('engine: opa-http', 'url: http://a', 'entrypoint: a/b'), [
    '4:13: entrypoint is an option of engine opa-wasm only',
  ])
  for (const url of ['ftp://a', 'http://user:secret@a/', 'http://a/#x', 'a']) {
    t.strictSame(await told('engine: opa-http', `url: "${url}"`), [
      '3:6: url must be an http or https URL without credentials or fragment',
    ])
  }
  const parsed = (url: string) => policyOptions.parse({ engine: 'opa-http', url }).url
  t.equal(
    parsed('HTTP://[::1]:80/v1/data/a/b//'),
    'http://[::1]/v1/data/a/b',
    'one more name, which is empty',
  )
  t.equal(parsed('https://OPA.example:443/v1/data/a/?b=/'), 'https://opa.example/v1/data/a?b=/')
  t.equal(parsed('https://a/decide/'), 'https://a/decide/', 'no API of OPA')
  t.strictSame(await told('engine: opa-http', 'url: http://a', 'deadline_ms: 0'), [
    '4:14: deadline_ms must be at least 1',
  ])
  t.strictSame(await told('engine: opa-http', 'url: http://a', 'argument: none'), [
    '4:1: unknown key "argument" in plugin policy: did you mean arguments?',
  ])
  const sample = (input: string): string => `samples: [{ input: { ${input} }, allow: true }]`
  const who = 'principal: { id: a }, action: x, required_capability: y'
  t.strictSame(await told('engine: opa-http', 'url: http://a', sample(`${who}, modle: m`)), [
    '4:79: unknown key "modle" in samples[0].input: did you mean model?',
  ])
  t.strictSame(await told('engine: opa-http', 'url: http://a', sample(`${who}, arguments: { a: 1 }`)), [
    '4:90: samples[0].input.arguments is never given to the policy with arguments: digests',
  ])
})

await t.test(
  'F-31 check-config names the file and the line of a sample that is answered otherwise',
  async (t) => {
    const sample = `samples:
  - { input: { principal: { id: a }, action: x, required_capability: y }, allow: false }
`
    const directory = withPolicy(t, `# ours\n${wasm('yes', sample)}`)
    const said: string[] = []
    const write = (...lines: readonly string[]): void => void said.push(...lines)
    t.equal(await checkConfig(directory, {}, { out: write, err: write }), 1)
    t.strictSame(said, [
      `${directory}/35-policy.yaml:2:9: the policy does not decide as its samples expect: samples[0] is allowed but should be refused`,
    ])
  },
)

await t.test('the example works as its README says: its samples hold, and its lines are tried', async (t) => {
  const example = readFileSync(join(SHIPPED, 'examples/policy/35-policy.yaml'), 'utf8')
  const directory = withPolicy(t, example)
  cpSync(join(SHIPPED, 'examples/policy'), join(directory, 'examples/policy'), { recursive: true })
  const { checks } = await load(t, directory)
  t.equal(checks.length, 1)
  writeFileSync(join(directory, '35-policy.yaml'), example.replace('allow: false', 'allow: true'))
  t.match(await problems(directory), [/samples\[1\] is refused \(This model takes the capability acme/])
})
