import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { PolicyEngine } from '../../../plugins/policy/engine.ts'
import { policyInput } from '../../../plugins/policy/input.ts'
import { policy, readDecision } from '../../../plugins/policy/policy.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { policyFacts, toolFacts } from '../../support/plugins/policy-facts.ts'

const answering = (answer: unknown): PolicyEngine => ({
  evaluate: () => Promise.resolve(answer),
  close: () => Promise.resolve(),
})

/** How a call ends that a policy has answered so: null, or the refusal. */
async function judged(engine: PolicyEngine): Promise<Refusal | null> {
  try {
    t.same(await policy(engine, 'digests').admit(policyFacts()), {}, 'it gives nothing')
    return null
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    return error
  }
}

await t.test('§2.2 exactly true and {allow: true} allow', async (t) => {
  for (const yes of [true, { allow: true }, { allow: true, reason: 'fine' }]) {
    t.equal(await judged(answering(yes)), null, JSON.stringify(yes))
  }
})

await t.test(
  '§2.2 a plain no is policy_denied, with the reason of the policy where it gives one',
  async (t) => {
    for (const no of [false, undefined, { allow: false }, { allow: false, reason: '' }]) {
      const refusal = await judged(answering(no))
      t.match(refusal, { reason: 'policy_denied', status: 403, detail: {} }, String(JSON.stringify(no)))
      t.equal(refusal?.message, 'A policy of this organisation refuses this call. Ask an operator why.')
    }
    const refusal = await judged(answering({ allow: false, reason: 'Not on Sundays.' }))
    t.match(refusal, {
      reason: 'policy_denied',
      message: 'Not on Sundays.',
      detail: { policy: 'Not on Sundays.' },
    })
  },
)

await t.test(
  '§2.2 any other answer refuses with plugin_failed, and says what it was to the log only',
  async (t) => {
    const others: readonly (readonly [unknown, RegExp])[] = [
      [null, /with null/],
      [1, /with a number/],
      ['true', /with a string/],
      [[true], /with a list/],
      [{}, /allow is no boolean/],
      [{ allow: 'true' }, /allow is no boolean/],
      [{ allow: 1 }, /allow is no boolean/],
      [{ allow: null }, /allow is no boolean/],
      [{ allow: true, reason: 7 }, /reason that is no string/],
      [{ allow: true, obligations: ['redact'] }, /member "obligations"/],
      [JSON.parse('{"allow":true,"__proto__":{}}'), /member "__proto__"/],
    ]
    for (const [answer, cause] of others) {
      const refusal = await judged(answering(answer))
      t.match(refusal, { reason: 'plugin_failed', status: 500, detail: {} }, JSON.stringify(answer))
      t.match(String(refusal?.cause), cause)
      t.notMatch(refusal?.message, /policy answered/)
    }
  },
)

await t.test('§2.2 an engine that fails refuses with plugin_failed, whatever it throws', async (t) => {
  for (const error of [new Error('broken'), new Refusal('body_invalid'), 'text', undefined]) {
    const refusal = await judged({ ...answering(true), evaluate: () => Promise.reject(error) })
    t.match(refusal, { reason: 'plugin_failed', cause: error })
  }
})

await t.test(
  'H2 calls of one principal that wait for the policy leave room for those of others',
  async (t) => {
    const release = Promise.withResolvers<true>()
    const check = policy({ ...answering(true), evaluate: () => release.promise }, 'none')
    const facts = policyFacts()
    const callsOf = (id: string, count: number) => {
      const principal = { ...facts.principal, id }
      const asked = { ...facts, principal, granted: { ...facts.granted, principal } }
      return Array.from({ length: count }, async () => check.admit(asked))
    }
    const flood = callsOf('acme::flood', 256)
    const more = callsOf('acme::flood', 1)
    await t.rejects(Promise.all(more), {
      reason: 'overloaded',
      status: 503,
      message: /^256 of your calls are waiting/,
    })
    const others = ['a', 'b', 'c'].flatMap((name) => callsOf(`acme::${name}`, 256))
    await t.rejects(Promise.all(callsOf('acme::late', 1)), {
      reason: 'overloaded',
      message: /^1024 calls are waiting/,
    })
    release.resolve(true)
    t.equal((await Promise.all([...flood, ...others])).length, 1_024)
    t.same(await Promise.all(callsOf('acme::flood', 256)), Array(256).fill({}), 'and room again')
  },
)

await t.test('threat 29 a reason cannot steer a terminal, hide, or be endless', async (t) => {
  const said = (reason: string) => readDecision({ allow: false, reason })
  t.same(said('a\u001b[2Jb\r\nc\u202ed\u200be\ud800f\u2028g'), { allow: false, reason: 'a[2Jbcdefg' })
  t.same(said('\u0007\n'), { allow: false, reason: null })
  t.same(said('é🙂'.repeat(300)), { allow: false, reason: 'é🙂'.repeat(128) })
})

await t.test('§4.3 a policy sees who calls what, and no header, body or key', async (t) => {
  const proof = { jkt: 'thumb', replayKey: 'canary-replay', expiresAt: 1 }
  t.strictSame(policyInput(policyFacts({ proof, headers: { authorization: 'canary-header' } }), 'values'), {
    version: 1,
    request_id: 'req_test',
    time: '2026-01-01T00:00:00.000Z',
    principal: { id: 'acme::bot', type: 'agent', capabilities: ['llm.chat', 'acme.special'] },
    action: 'egress_llm_chat',
    required_capability: 'llm.chat',
    method: null,
    tool: null,
    resource: null,
    model: 'gpt-test',
    stream: false,
    arguments: null,
    arguments_sha256: null,
    proof: { jkt: 'thumb' },
    remote_address: '127.0.0.1',
  })
})

await t.test('§4.3 arguments reach the policy as values, as a digest, or not at all', async (t) => {
  const named = { method: 'tools/call', tool: 'payments.refund', resource: 'payments', model: null }
  const sha256 = 'ab'.repeat(32)
  const values = { amount: 12, note: 'canary-argument' }
  t.match(policyInput(toolFacts(), 'values'), { ...named, arguments: values, arguments_sha256: sha256 })
  t.match(policyInput(toolFacts(), 'digests'), { ...named, arguments: null, arguments_sha256: sha256 })
  t.match(policyInput(toolFacts(), 'none'), { ...named, arguments: null, arguments_sha256: null })
  for (const mode of ['digests', 'none'] as const) {
    t.notMatch(JSON.stringify(policyInput(toolFacts(), mode)), /canary/)
  }
})

await t.test(
  'docs/protocol.md#token-endpoint a narrowed token narrows what the policy sees, and never widens it',
  async (t) => {
    const seen = (scope: readonly string[] | null) =>
      policyInput(policyFacts({ token: { scope, bound: false } }), 'none').principal.capabilities
    t.same(seen(null), ['llm.chat', 'acme.special'])
    t.same(seen(['llm.chat', 'acme.other']), ['llm.chat'])
    t.same(seen([]), [])
  },
)

await t.test('a pipeline that does not say whether a token came is refused', async (t) => {
  const { token: _, ...facts } = policyFacts()
  await t.rejects(async () => policy(answering(true), 'none').admit(facts), {
    message: 'whether an access token came is not known here',
  })
})

await t.test('docs/policy.md documents every member of the input, and no other', async (t) => {
  const text = await readFile(join(import.meta.dirname, '../../../docs/policy.md'), 'utf8')
  const table = text.slice(text.indexOf('## The input'), text.indexOf('## The answer'))
  const documented = [...table.matchAll(/^\| `([a-z_0-9]+)/gm)].map(([, name]) => name)
  t.strictSame(documented, Object.keys(policyInput(policyFacts(), 'none')))
})
