import t from 'tap'
import { capabilityGate, routeDemand } from '../../plugins/capability.ts'
import { dpop } from '../../plugins/dpop/dpop.ts'
import type { CallPermit } from '../../plugins/permit.ts'
import { pin, recheckPin } from '../../plugins/pin/pin.ts'
import { type Arrival, Pipeline, type Plugin, type Recorder } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { gatedRoute } from '../../proxy/http/route.ts'
import { arrival } from '../support/plugins/arrival.ts'
import { constrained } from '../support/plugins/constrained.ts'

const receipt = { stream: 'main', seq: 1, hash: 'h' }

function recorder(log: string[] = []): Recorder<Arrival> {
  return {
    allowed: async () => {
      log.push('allowed')
      return receipt
    },
    refused: async (_facts, { reason }, { by }) => {
      log.push(`refused ${reason} by ${by}`)
      return receipt
    },
  }
}

const step = (name: string, admit: () => object | Promise<object>): Plugin<object, object> => ({
  name,
  admit,
})

await t.test(
  'plugins run in their order, each with the facts of those before it, and then it is recorded',
  async (t) => {
    const log: string[] = []
    const first: Plugin<Arrival, { one: number }> = {
      name: 'one',
      admit: () => ({ one: 1 }),
    }
    const second: Plugin<{ one: number }, { two: number }> = {
      name: 'two',
      admit: async ({ one }) => ({ two: one + 1 }),
    }
    const pipeline = Pipeline.start().pass(first).pass(second)
    t.strictSame(pipeline.names, ['one', 'two'])
    const decision = await pipeline.decide(arrival(), recorder(log))
    t.match(decision, { allowed: true, receipt, facts: { one: 1, two: 2, id: 'req_test' } })
    t.strictSame(log, ['allowed'])
  },
)

await t.test('the first refusal ends it, and is recorded with the plugin that said so', async (t) => {
  const log: string[] = []
  const pipeline = Pipeline.start()
    .pass(step('door', () => Promise.reject(new Refusal('not_found'))))
    .pass(step('never', () => t.fail('ran after a refusal') as never))
  const decision = await pipeline.decide(arrival(), recorder(log))
  t.match(decision, { allowed: false, by: 'door', receipt })
  t.strictSame(log, ['refused not_found by door'])
})

await t.test(
  'F-28 a plugin that breaks has refused: throwing, rejecting, or answering nonsense',
  async (t) => {
    const broken = {
      throws: () => {
        throw new TypeError('oops')
      },
      rejects: () => Promise.reject(new TypeError('oops')),
    }
    for (const [name, admit] of Object.entries(broken)) {
      const decision = await Pipeline.start().pass(step(name, admit)).decide(arrival(), recorder())
      t.match(decision, { allowed: false, refusal: { reason: 'plugin_failed' } }, name)
    }
  },
)

await t.test('F-24 where the record cannot be written the answer is a refusal, allowed or not', async (t) => {
  const failing: Recorder<Arrival> = {
    allowed: () => Promise.reject(new Error('disk full')),
    refused: () => Promise.reject(new Error('disk full')),
  }
  const yes = Pipeline.start()
  const no = Pipeline.start().pass(step('no', () => Promise.reject(new Refusal('not_found'))))
  for (const pipeline of [yes, no]) {
    const decision = await pipeline.decide(arrival(), failing)
    t.match(decision, {
      allowed: false,
      by: 'audit',
      receipt: null,
      refusal: { reason: 'audit_unavailable' },
    })
  }
})

await t.test('every plugin that let a call through is told once how it ended, and no other', async (t) => {
  const told: string[] = []
  const counting = (name: string, settled: (status: string) => unknown): Plugin<object, object> => ({
    name,
    admit: () => ({ [name]: true }),
    settled: (facts, { status }) => {
      told.push(`${name} ${status} ${Object.hasOwn(facts, name)}`)
      return settled(status)
    },
  })
  const ended = { at: 1, status: 'refused', provider: null, detail: {} } as const
  const throws = counting('throws', () => {
    throw new Error('oops')
  })
  const rejects = counting('rejects', () => Promise.reject(new Error('oops')))
  const decision = await Pipeline.start()
    .pass(throws)
    .pass(rejects)
    .pass(counting('last', () => 1))
    .pass(step('no', () => Promise.reject(new Refusal('not_found'))))
    .pass(counting('never', () => t.fail('it let nothing through')))
    .decide(arrival(), recorder())
  const faults = new Promise<string[]>((resolve) => {
    const seen: string[] = []
    decision.settled(ended, (plugin, error) => {
      seen.push(`${plugin} ${String(error)}`)
      if (seen.length === 2) resolve(seen)
    })
  })
  t.strictSame(told, ['throws refused true', 'rejects refused true', 'last refused true'])
  t.strictSame(await faults, ['throws Error: oops', 'rejects Error: oops'])
})

await t.test('a wrong order and an ungated working handler do not compile', (t) => {
  const KEYS = { known: new Map(), open: () => Buffer.alloc(32) }
  const known = Pipeline.start().pass(pin(() => undefined, KEYS))
  const work = (facts: { granted: CallPermit }) => ({ status: 200, body: facts.granted.demand.action })
  // @ts-expect-error dpop needs the principal that pin gives
  Pipeline.start().pass(dpop(constrained('optional')))
  // @ts-expect-error the gate needs the proof's verdict
  known.pass(routeDemand('a', 'b')).pass(capabilityGate())
  // @ts-expect-error a fact is written once: pin gives the principal that is known already
  known.pass(pin(() => undefined, KEYS))
  // @ts-expect-error this pipeline does not gate
  gatedRoute('POST', '/x', { pipeline: known, recorder: recorder() }, work)
  const full = Pipeline.start()
    .pass(routeDemand('a', 'b'))
    .pass(pin(() => undefined, KEYS))
    .pass(dpop(constrained('optional')))
    .pass({ name: 'target', admit: () => ({ target: 'a model' }) })
    .pass(recheckPin(pin(() => undefined, KEYS)))
    .pass(capabilityGate<string>())
  t.ok(gatedRoute('POST', '/x', { pipeline: full, recorder: recorder() }, work))
  t.end()
})
