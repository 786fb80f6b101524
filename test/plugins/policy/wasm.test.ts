import { chmodSync, cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import type { PolicyEngine } from '../../../plugins/policy/engine.ts'
import { policyOptions } from '../../../plugins/policy/options.ts'
import { type LoadedPolicy, openPolicy, startEvaluator } from '../../../plugins/policy/policy.ts'
import { policyFacts } from '../../support/plugins/policy-facts.ts'
import { tar } from '../../support/plugins/tar.ts'

const WASM = join(import.meta.dirname, '../../support/plugins/policy-fixture/fixture.wasm')
/** Long enough that only what never ends is late. */
const AMPLE_MS = 10_000
/** The model that makes `loops` loop. */
const ENDLESS = `${'a'.repeat(60)}!`

async function open(t: Test, options: Record<string, unknown>, directory = '/'): Promise<LoadedPolicy> {
  const read = policyOptions.parse({
    engine: 'opa-wasm',
    bundle: WASM,
    deadline_ms: AMPLE_MS,
    entrypoint: 'fixture/yes',
    ...options,
  })
  const loaded = await openPolicy(read, directory)
  t.teardown(loaded.close)
  return loaded
}

/** `allowed`, or why a call is refused. */
async function verdict(
  { check }: LoadedPolicy,
  model = 'quick',
  capabilities = ['llm.chat'],
): Promise<string> {
  const facts = policyFacts()
  try {
    await check.admit({
      ...facts,
      call: { ...facts.call, model },
      granted: { ...facts.granted, principal: { ...facts.principal, capabilities } },
    })
    return 'allowed'
  } catch (error) {
    if (!(error instanceof Error && 'reason' in error)) throw error
    return `${String(error.reason)}: ${error.cause instanceof Error ? error.cause.message : error.message}`
  }
}

await t.test('§2.2 compiled Rego decides: every kind of answer', async (t) => {
  const plain = 'policy_denied: A policy of this organisation refuses this call. Ask an operator why.'
  const answers = {
    yes: 'allowed',
    allowing: 'allowed',
    no: plain,
    undefined_rule: plain,
    denying: 'policy_denied: because',
    number: 'plugin_failed: the policy answered with a number, neither a boolean nor {allow, reason}',
    text: 'plugin_failed: the policy answered with a string, neither a boolean nor {allow, reason}',
    empty: 'plugin_failed: the policy answered with null, neither a boolean nor {allow, reason}',
    list: 'plugin_failed: the policy answered with a list, neither a boolean nor {allow, reason}',
    truthy: 'plugin_failed: the policy answered with an object whose allow is no boolean',
    obliging:
      'plugin_failed: the policy answered with the member "obligations"; only allow and reason are known',
    huge: 'plugin_failed: the policy failed: its answer is larger than 65536 bytes',
  }
  for (const [rule, expected] of Object.entries(answers)) {
    const policy = await open(t, { entrypoint: `fixture/${rule}` })
    t.equal(await verdict(policy), expected, rule)
    t.equal(await verdict(policy), expected, `${rule}, asked again`)
  }
})

await t.test('§2.2 an operator-defined capability is what a policy tests for', async (t) => {
  const policy = await open(t, { entrypoint: 'fixture/holds' })
  t.equal(await verdict(policy, 'quick', ['llm.chat', 'acme.special']), 'allowed')
  t.match(await verdict(policy, 'quick', ['llm.chat', 'acme.specialist']), /^policy_denied/)
  t.match(await verdict(policy, 'quick', []), /^policy_denied/)
})

await t.test('a policy that never ends is refused at its deadline, and the next call works', async (t) => {
  const policy = await open(t, { entrypoint: 'fixture/loops', deadline_ms: 1_000 })
  t.equal(await eventually(policy, 'quick'), 'allowed')
  t.equal(await verdict(policy, ENDLESS), 'plugin_failed: the policy did not answer within 1000 ms')
  t.equal(await eventually(policy, 'quick'), 'allowed', 'asked while the next thread starts')
})

/** A machine that is busy may take longer than one deadline to start a thread. */
async function eventually(policy: LoadedPolicy, model: string): Promise<string> {
  let last = ''
  for (let attempt = 0; attempt < 20 && last !== 'allowed'; attempt++) last = await verdict(policy, model)
  return last
}

await t.test('a loop inside the compiled code is ended just so', async (t) => {
  const policy = await open(t, { entrypoint: 'fixture/greedy', deadline_ms: 1_000 })
  t.match(await verdict(policy, 'greedy'), /^plugin_failed/)
  t.equal(await eventually(policy, 'modest'), 'allowed')
})

/** The engine by itself, with limits that no operator can set. */
async function engineOf(
  t: Test,
  rule: string,
  deadlineMs: number,
  maximumPages = 4096,
): Promise<PolicyEngine> {
  const options = { wasm: readFileSync(WASM), data: null, entrypoint: `fixture/${rule}`, initialPages: 20 }
  const engine = await startEvaluator({ ...options, maximumPages }, { deadlineMs, startMs: AMPLE_MS })
  t.teardown(engine.close)
  return engine
}

await t.test('F-28 the memory of a policy is bounded, and what it left behind judges nobody', async (t) => {
  const engine = await engineOf(t, 'greedy', AMPLE_MS, 64)
  await t.rejects(engine.evaluate('{"model":"greedy"}'), { message: /^the policy failed: / })
  t.equal(await engine.evaluate('{"model":"modest"}'), true)
  await t.rejects(engine.evaluate(`{"model":"${'x'.repeat(5_000_000)}"}`), {
    message: /^the policy failed: /,
  })
  t.equal(await engine.evaluate('{"model":"modest"}'), true)
})

await t.test('questions beyond those that may wait are refused at once', async (t) => {
  const engine = await engineOf(t, 'yes', AMPLE_MS)
  const waiting = Array.from({ length: 1025 }, () => engine.evaluate('{}'))
  await t.rejects(engine.evaluate('{}'), { message: 'too many calls wait for the policy' })
  t.ok((await Promise.all(waiting)).every((answer) => answer === true))
  t.equal(await engine.evaluate('{}'), true)
})

await t.test('F-31 a closed policy answers who waits and who still comes, and keeps no thread', async (t) => {
  const engine = await engineOf(t, 'yes', AMPLE_MS)
  const under = engine.evaluate('{}')
  const closed = engine.close()
  t.equal(await under, true)
  await closed
  t.equal(await engine.evaluate('{}'), true)
  await engine.close()
})

await t.test('a policy reads the data of its bundle, or the file that is given', async (t) => {
  const directory = t.testdir({ 'no.json': '{"acme":{"verdict":false}}' })
  const bundle = {
    '/data.json': '{"acme":{"verdict":true}}',
    '/policy.wasm': readFileSync(WASM),
    '/.manifest': '{}',
  }
  writeFileSync(join(directory, 'bundle.tar.gz'), gzipSync(tar(bundle)))
  const options = { entrypoint: 'fixture/reads_data', bundle: './bundle.tar.gz' }
  t.equal(await verdict(await open(t, options, directory)), 'allowed')
  t.match(await verdict(await open(t, { ...options, data: 'no.json' }, directory)), /^policy_denied/)
  t.match(await verdict(await open(t, { ...options, bundle: WASM }, directory)), /^policy_denied/, 'no data')
})

await t.test('the digest is of the bytes that judge', async (t) => {
  const directory = t.testdir({
    'one.json': '{"acme":{"verdict":true}}',
    'two.json': '{"acme":{"verdict":1}}',
  })
  const digest = async (options: Record<string, unknown>) => (await open(t, options, directory)).digest
  const digests = [await digest({}), await digest({ data: 'one.json' }), await digest({ data: 'two.json' })]
  t.equal(new Set(digests).size, 3)
  t.match(digests[0], /^[0-9a-f]{64}$/)
  t.equal(await digest({}), digests[0])
})

await t.test('a compiled policy that cannot be used stops the boot with one sentence', async (t) => {
  const directory = t.testdir({
    'empty.wasm': '',
    'broken.wasm': '\0asm\x01\0\0\0\xff',
    'other.wasm': '\0asm\x01\0\0\0',
    'text.tar.gz': 'hello',
    'list.json': '[]',
    'half.json': '{"a"',
    folder: {},
  })
  const archive = (name: string, files: Parameters<typeof tar>[0], cut = 0) => {
    const bytes = tar(files)
    writeFileSync(join(directory, name), gzipSync(bytes.subarray(0, bytes.length - cut)))
  }
  archive('none.tar.gz', { '/data.json': '{}' })
  archive('cut.tar.gz', { '/policy.wasm': 'x'.repeat(2_000) }, 2_500)
  archive('twice.tar.gz', { '/policy.wasm': 'x', './policy.wasm': 'y' })
  writeFileSync(join(directory, 'half.tar.gz'), gzipSync(Buffer.alloc(4_000, 1)).subarray(0, 30))
  writeFileSync(join(directory, 'noise.tar.gz'), gzipSync(Buffer.alloc(4_000, 1)))
  writeFileSync(join(directory, 'bomb.tar.gz'), gzipSync(Buffer.alloc(80 * 1_048_576)))
  mkdirSync(join(directory, 'open'))
  cpSync(WASM, join(directory, 'open/policy.wasm'))
  cpSync(WASM, join(directory, 'open.wasm'))
  chmodSync(join(directory, 'open'), 0o777)
  chmodSync(join(directory, 'open.wasm'), 0o666)
  const wrong: readonly (readonly [Record<string, string>, RegExp])[] = [
    [{ bundle: 'gone.wasm' }, /^gone\.wasm cannot be read \(ENOENT\)$/],
    [{ bundle: 'folder' }, /^folder is not a regular file$/],
    [{ bundle: 'empty.wasm' }, /^empty\.wasm is neither a policy\.wasm nor a bundle \.tar\.gz$/],
    [{ bundle: 'broken.wasm' }, /^broken\.wasm cannot be used: /],
    [{ bundle: 'other.wasm' }, /^other\.wasm cannot be used: /],
    [{ bundle: 'text.tar.gz' }, /is neither a policy\.wasm nor/],
    [{ bundle: 'none.tar.gz' }, /^none\.tar\.gz holds no \/policy\.wasm/],
    [{ bundle: 'cut.tar.gz' }, /^cut\.tar\.gz cannot be unpacked: it is cut short$/],
    [{ bundle: 'twice.tar.gz' }, /cannot be unpacked: it holds policy\.wasm twice$/],
    [{ bundle: 'half.tar.gz' }, /^half\.tar\.gz cannot be unpacked: /],
    [{ bundle: 'noise.tar.gz' }, /cannot be unpacked: it is no tar archive$/],
    [{ bundle: 'bomb.tar.gz' }, /^bomb\.tar\.gz cannot be unpacked: /],
    [{ bundle: 'open.wasm' }, /^everybody may write to open\.wasm or to its directory/],
    [{ bundle: 'open/policy.wasm' }, /^everybody may write to open\/policy\.wasm or to its directory/],
    [{ data: 'list.json' }, /^list\.json must hold a JSON object$/],
    [{ data: 'half.json' }, /^half\.json is not JSON: /],
    [{ data: 'gone.json' }, /^gone\.json cannot be read/],
    [
      { entrypoint: 'fixture/nobody' },
      /fixture\.wasm cannot be used: it has no entrypoint fixture\/nobody; it has .*fixture\/yes/,
    ],
  ]
  for (const [options, message] of wrong) {
    await t.rejects(open(t, options, directory), { message }, JSON.stringify(options))
  }
})

const sample = (model: string, allow: boolean) => ({
  input: {
    principal: { id: 'acme::x', capabilities: [model] },
    action: 'egress_llm_chat',
    required_capability: 'llm.chat',
    model,
  },
  allow,
})

await t.test('F-31 samples are tried at boot: all that are answered wrongly stop it', async (t) => {
  const entrypoint = 'fixture/holds'
  const right = [sample('acme.special', true), sample('other', false)]
  t.ok(await open(t, { entrypoint, samples: right }))
  const wrong = [sample('acme.special', false), ...right, sample('other', true)]
  await t.rejects(open(t, { entrypoint, samples: wrong }), {
    message:
      'the policy does not decide as its samples expect: samples[0] is allowed but should be refused; ' +
      'samples[3] is refused but should be allowed',
  })
  await t.rejects(open(t, { entrypoint: 'fixture/denying', samples: [sample('x', true)] }), {
    message: /samples\[0\] is refused \(because\) but should be allowed$/,
  })
})

await t.test('F-31 a sample without a decision stops the boot, also where a no was expected', async (t) => {
  const samples = [sample('x', false)]
  await t.rejects(open(t, { entrypoint: 'fixture/number', samples }), {
    message: /^samples\[0\] cannot be tried: the policy answered with a number/,
  })
  await t.rejects(
    open(t, { entrypoint: 'fixture/loops', deadline_ms: 300, samples: [sample(ENDLESS, false)] }),
    {
      message: 'samples[0] cannot be tried: the policy did not answer within 300 ms',
    },
  )
})
