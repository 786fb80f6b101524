import { chmodSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { CapabilityDemand } from '../../../plugins/facts.ts'
import {
  type CheckFacts,
  type CheckPlugin,
  loadOperatorModule,
} from '../../../plugins/operator-files/module.ts'
import type { CallPermit } from '../../../plugins/permit.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import { holderOf } from '../../support/permit.ts'
import { heldFor } from '../../support/plugins/arrival.ts'

const REFUSAL = pathToFileURL(join(import.meta.dirname, '../../../plugins/refusal.ts')).href

function facts(): Arrival & CheckFacts {
  const demand: CapabilityDemand = { action: 'egress_llm_chat', demanded: ['llm.chat'] }
  const principal = holderOf('llm.chat')
  return {
    id: 'req_1',
    at: 1_700_000_000_000,
    method: 'POST',
    path: '/v1/messages',
    query: '',
    params: {},
    headers: { authorization: 'Bearer canary' },
    remoteAddress: '127.0.0.1',
    localUid: null,
    peer: null,
    readBody: async () => Buffer.from('canary'),
    held: heldFor(),
    answer: {},
    hangup: new CallHangup(),
    authority: OWN_AUTHORITY,
    principal,
    proof: null,
    demand,
    call: { model: 'gpt-4o', tool: null, stream: false },
    // Stands for what plugins/capability.ts makes.
    granted: { kind: 'call', authority: OWN_AUTHORITY, principal, demand, target: null } as CallPermit,
  }
}

/** A module whose plugin has this `admit`, loaded. */
async function check(
  directory: string,
  admit: string,
  needs = '["principal", "proof", "call"]',
): Promise<CheckPlugin> {
  const text = `import { Refusal } from ${JSON.stringify(REFUSAL)}
export const plugin = (options: object) => ({ name: 'check', needs: ${needs}, admit: ${admit} })
export const unused = Refusal
`
  writeFileSync(join(directory, 'check.ts'), text)
  return (await loadOperatorModule({ path: './check.ts', directory, options: {} })).check
}

async function refusalOf(work: Promise<unknown> | object): Promise<Refusal> {
  const error: unknown = await Promise.resolve(work).then(
    () => null,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof Refusal)) throw error ?? new Error('it was admitted')
  return error
}

await t.test("an operator's module refuses by throwing a Refusal and admits by returning", async (t) => {
  const directory = t.testdir({})
  const admit = `({ principal, call }) => {
    if (call.model !== options.model) throw new Refusal('policy_denied', { message: principal.id + ' may not' })
  }`
  const { check: first, needs } = await load(directory, admit, { model: 'gpt-4o' })
  t.same(await first.admit(facts()), {})
  const { check: second } = await load(directory, admit, { model: 'other' })
  t.match(await refusalOf(second.admit(facts())), { reason: 'policy_denied', message: 'acme::bot may not' })
  t.same(needs, ['principal', 'call'])
})

async function load(directory: string, admit: string, options: Record<string, unknown>) {
  writeFileSync(
    join(directory, 'check.js'),
    `import { Refusal } from ${JSON.stringify(REFUSAL)}
export function plugin(options) { return { name: 'check', needs: ['principal', 'call'], admit: ${admit} } }`,
  )
  return loadOperatorModule({ path: join(directory, 'check.js'), directory: '/', options })
}

await t.test('extra checks may only narrow: facts that a check returns are ignored', async (t) => {
  const loaded = await check(
    t.testdir({}),
    `async () => ({ granted: true, principal: { id: 'acme::root' } })`,
  )
  t.strictSame(await loaded.admit(facts()), {})
})

await t.test('extra checks may only narrow: what a check changes does not reach the gateway', async (t) => {
  const admit = `(facts) => { facts.principal.capabilities.push('admin'); facts.call.model = 'x'; facts.answer = 1 }`
  const loaded = await check(t.testdir({}), admit)
  const given = facts()
  await loaded.admit(given)
  t.same(given.principal, facts().principal)
  t.same(given.call, facts().call)
  t.same(given.answer, {})
})

await t.test('a check sees the facts it needs and never headers, body or answer', async (t) => {
  const admit = `(facts) => { throw new Refusal('policy_denied', { message: Object.keys(facts).sort().join() }) }`
  const loaded = await check(t.testdir({}), admit)
  const { message } = await refusalOf(loaded.admit(facts()))
  t.equal(message, 'at,call,id,method,path,principal,proof,remoteAddress')
})

await t.test('a check may be told how a call ended, with copies of the facts it needs', async (t) => {
  const directory = t.testdir({
    'count.js': `export const plugin = () => ({
  name: 'count',
  needs: ['principal'],
  admit() {},
  settled(facts, ended) {
    facts.principal.id += ' as a copy'
    ended.detail.tokens.output += 1
    throw new Error(Object.keys(facts).sort().join() + ' ' + ended.status + ' ' + ended.detail.tokens.output)
  },
})`,
  })
  const { check: loaded } = await loadOperatorModule({ path: './count.js', directory, options: {} })
  const given = facts()
  const detail = { tokens: { output: 7 } }
  // What it throws is the pipeline's to report: here it says what it was given.
  t.throws(() => loaded.settled?.(given, { at: 1, status: 'success', provider: 'openai', detail }), {
    message: 'at,id,method,path,principal,remoteAddress success 8',
  })
  t.same([given.principal.id, detail], ['acme::bot', { tokens: { output: 7 } }])
  t.equal((await check(t.testdir({ without: '' }), '() => {}')).settled, undefined)
})

await t.test('a check that throws anything but a Refusal has refused with plugin_failed', async (t) => {
  const throws = [
    '() => { throw new TypeError("oops") }',
    'async () => { throw "oops" }',
    '(f) => f.granted.capability',
  ]
  for (const [index, admit] of throws.entries()) {
    const loaded = await check(t.testdir({ [`case-${index}`]: '' }), admit)
    const refusal = await refusalOf(loaded.admit(facts()))
    t.equal(refusal.reason, 'plugin_failed')
    t.notMatch(refusal.message, 'oops', 'the cause is for the log')
    t.ok(refusal.cause)
  }
})

await t.test('a check that never settles has refused with plugin_failed', async (t) => {
  const directory = t.testdir({
    'stuck.ts': `export const plugin = () => ({ name: 'stuck', needs: [], admit: () => new Promise(() => {}) })`,
  })
  const loaded = await loadOperatorModule({ path: './stuck.ts', directory, options: {}, admitDeadline: 1 })
  const refusal = await refusalOf(loaded.check.admit(facts()))
  t.equal(refusal.reason, 'plugin_failed')
  t.match(refusal.cause, { message: 'stuck did not settle within 1 ms' })
})

await t.test('a fact that this route does not know refuses the call', async (t) => {
  const loaded = await check(t.testdir({}), '() => {}')
  const { call: _, ...without } = facts()
  const refusal = await refusalOf(
    loaded.admit({ ...without, call: undefined } as unknown as Arrival & CheckFacts),
  )
  t.match(refusal, {
    reason: 'plugin_failed',
    cause: { message: 'the fact call is not known on /v1/messages' },
  })
})

await t.test('F-31 a module that changed is loaded anew, one that did not is not', async (t) => {
  const directory = t.testdir({})
  const text = (name: string) =>
    `let made = 0; export const plugin = () => ({ name: '${name}-' + ++made, needs: [], admit() {} })`
  const loaded = async (name: string) => {
    writeFileSync(join(directory, 'm.ts'), text(name))
    const { check: found, digest } = await loadOperatorModule({ path: './m.ts', directory, options: {} })
    return [found.name, digest] as const
  }
  const [one, firstDigest] = await loaded('one')
  const [again, sameDigest] = await loaded('one')
  const [two, otherDigest] = await loaded('two')
  t.strictSame([one, again, two], ['one-1', 'one-2', 'two-1'])
  t.equal(sameDigest, firstDigest)
  t.not(otherDigest, firstDigest)
})

await t.test('a module that cannot be used is refused in one sentence', async (t) => {
  const returning = (made: string) => `export const plugin = () => (${made})`
  const cases: readonly (readonly [text: string, message: RegExp])[] = [
    ['export const plug = 1', /^\.\/m\.ts does not export a function named plugin$/],
    ['export const plugin = 1', /does not export a function named plugin$/],
    ['export default () => 1', /does not export a function named plugin$/],
    ['export const plugin = ', /^module \.\/m\.ts cannot be loaded: /],
    ['throw new Error("broken")', /^module \.\/m\.ts cannot be loaded: Error: broken$/],
    ['import "./gone.ts"', /^module \.\/m\.ts cannot be loaded: .*gone\.ts/],
    [
      'export function plugin() { throw new Error("models is missing") }',
      /^plugin\(options\) of \.\/m\.ts threw Error: models is missing$/,
    ],
    [returning('null'), /must return \{ name, needs, admit \}$/],
    [returning('{ name: "A b", needs: [], admit() {} }'), /returns a name that does not match/],
    [returning('{ name: "a", admit() {} }'), /must return needs, a list of facts$/],
    [
      returning('{ name: "a", needs: ["body"], admit() {} }'),
      /needs "body"; it may need principal, proof, demand, call, granted$/,
    ],
    [
      returning('{ name: "a", needs: [], gives: ["granted"], admit() {} }'),
      /gives facts, but a check of your own may only refuse: remove gives$/,
    ],
    [returning('{ name: "a", needs: [] }'), /must return admit, a function$/],
    [returning('{ name: "a", needs: [], admit() {}, settled: 1 }'), /returns settled, but no function$/],
  ]
  for (const [index, [text, message]] of cases.entries()) {
    const directory = t.testdir({ 'm.ts': `${text}\n// ${index}` })
    await t.rejects(loadOperatorModule({ path: './m.ts', directory, options: {} }), { message }, text)
  }
})

await t.test('a module that never finishes loading is refused', async (t) => {
  for (const text of ['await new Promise(() => {})', 'export const plugin = () => new Promise(() => {})']) {
    const directory = t.testdir({ 'm.ts': `${text}\nexport {}` })
    const loading = loadOperatorModule({ path: './m.ts', directory, options: {}, loadDeadline: 1 })
    await t.rejects(loading, { message: './m.ts did not load within 1 ms' })
  }
})

await t.test('a module that is missing or no module is refused', async (t) => {
  const directory = t.testdir({ 'm.json': '{}', 'd.ts': {} })
  const loading = (path: string) => loadOperatorModule({ path, directory, options: {} })
  await t.rejects(loading('./gone.ts'), { message: `module ${directory}/gone.ts cannot be read (ENOENT)` })
  await t.rejects(loading('./d.ts'), { message: `module ${directory}/d.ts cannot be read (EISDIR)` })
  await t.rejects(loading('./m.json'), { message: './m.json must be a .ts or .js file' })
})

await t.test('threat 34: a module that everybody may write to is refused', async (t) => {
  const directory = t.testdir({
    'm.ts': `export const plugin = () => ({ name: 'a', needs: [], admit() {} })`,
  })
  const loading = () => loadOperatorModule({ path: './m.ts', directory, options: {} })
  t.equal((await loading()).check.name, 'a')
  chmodSync(join(directory, 'm.ts'), 0o666)
  await t.rejects(loading(), { message: /^everybody may write to .*m\.ts or to its directory/ })
  chmodSync(join(directory, 'm.ts'), 0o644)
  chmodSync(directory, 0o1777)
  await t.rejects(loading(), { message: /^everybody may write to / })
})
