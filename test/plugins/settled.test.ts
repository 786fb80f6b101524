import t from 'tap'
import {
  type Arrival,
  type CallSettlement,
  Pipeline,
  type Plugin,
  type Recorder,
  StaleAuthority,
} from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { arrival } from '../support/plugins/arrival.ts'

const ENDED: CallSettlement = {
  at: 7,
  status: 'success',
  provider: 'openai',
  detail: { tokens: { output: 12 } },
}

/** Counts what it let through and what of that has ended. */
function counter(name: string, log: string[]): Plugin<Arrival, object> {
  return {
    name,
    admit: () => {
      log.push(`${name} let it through`)
      return {}
    },
    settled: ({ id }, { status, detail }) => {
      log.push(`${name} settled ${id} ${status} ${JSON.stringify(detail)}`)
    },
  }
}

const recorderOf = (log: string[]): Recorder<Arrival> => ({
  allowed: () => Promise.resolve(null),
  refused: () => Promise.resolve(null),
  settled: (_facts, { status }) => {
    log.push(`recorded ${status}`)
  },
})

const refuses: Plugin<Arrival, object> = {
  name: 'refuses',
  admit: () => {
    throw new Refusal('policy_denied')
  },
}

const noFault = (by: string): void => {
  t.fail(`${by} threw`)
}

await t.test(
  'a plugin is told once how each call that it let through ended, behind the outcome row',
  async (t) => {
    const log: string[] = []
    const pipeline = Pipeline.start().pass(counter('tokens', log))
    const decision = await pipeline.decide(arrival(), recorderOf(log))
    decision.settled(ENDED, noFault)
    t.strictSame(log, [
      'tokens let it through',
      'recorded success',
      'tokens settled req_test success {"tokens":{"output":12}}',
    ])
  },
)

await t.test(
  'a call that a later plugin refuses has ended too, and those behind it are not told of it',
  async (t) => {
    const log: string[] = []
    const pipeline = Pipeline.start().pass(counter('first', log)).pass(refuses).pass(counter('behind', log))
    const decision = await pipeline.decide(arrival(), recorderOf(log))
    decision.settled({ ...ENDED, status: 'refused', detail: {} }, noFault)
    t.strictSame(log, ['first let it through', 'first settled req_test refused {}'])
  },
)

await t.test('a plugin that throws while it is told keeps nobody else from being told', async (t) => {
  const log: string[] = []
  const faults: string[] = []
  const broken: Plugin<Arrival, object> = {
    name: 'broken',
    admit: () => ({}),
    settled: () => {
      throw new Error('on fire')
    },
  }
  const recorder: Recorder<Arrival> = {
    ...recorderOf(log),
    settled: () => {
      throw new Error('no row')
    },
  }
  const pipeline = Pipeline.start().pass(broken).pass(counter('tokens', log))
  const decision = await pipeline.decide(arrival(), recorder)
  decision.settled(ENDED, (by, error) => faults.push(`${by}: ${String(error)}`))
  t.strictSame(faults, ['audit: Error: no row', 'broken: Error: on fire'])
  t.equal(log.at(-1), 'tokens settled req_test success {"tokens":{"output":12}}')
})

/** Finds so many calls overtaken, and records those after them. */
function overtaking(log: string[], times: number): Recorder<Arrival> {
  let left = times
  return {
    ...recorderOf(log),
    allowed: async (facts) => {
      log.push(`allowed ${Object.keys(facts).includes('known')}`)
      left -= 1
      if (left >= 0) throw new StaleAuthority()
      return { stream: 'main', seq: 9, hash: 'h' }
    },
    refused: async (_facts, { reason }, { by }) => {
      log.push(`refused ${reason} by ${by}`)
      return null
    },
  }
}

function overtaken(log: string[]) {
  let asked = 0
  const known: Plugin<Arrival, { known: number }> = {
    name: 'known',
    admit: () => {
      asked += 1
      return { known: asked }
    },
  }
  return Pipeline.start()
    .pass(counter('head', log))
    .pass(known)
    .anew(known)
    .pass({ name: 'gate', admit: ({ known: by }: { known: number }) => ({ judgedBy: by }) })
    .pass(counter('tail', log))
}

await t.test('B1 a call that was overtaken is judged once more, by what is so now', async (t) => {
  const log: string[] = []
  const decision = await overtaken(log).decide(arrival(), overtaking(log, 1))
  t.match(decision, { allowed: true, receipt: { seq: 9 }, facts: { known: 2, judgedBy: 2 } })
  decision.settled(ENDED, noFault)
  const { id } = arrival()
  t.strictSame(log, [
    'head let it through',
    'tail let it through',
    'allowed true',
    `tail settled ${id} refused {}`,
    'tail let it through',
    'allowed true',
    'recorded success',
    `head settled ${id} success {"tokens":{"output":12}}`,
    `tail settled ${id} success {"tokens":{"output":12}}`,
  ])
})

await t.test('B1 a call that is overtaken twice is refused, and may come again', async (t) => {
  const log: string[] = []
  const decision = await overtaken(log).decide(arrival(), overtaking(log, 9))
  t.match(decision, {
    allowed: false,
    by: 'audit',
    refusal: { reason: 'overloaded', status: 503, headers: { 'retry-after': '1' } },
  })
  t.strictSame(log.slice(-2), ['allowed true', 'refused overloaded by audit'])
})

await t.test('B1 a call that is overtaken by its revocation is refused by who is asked again', async (t) => {
  const log: string[] = []
  const pipeline = Pipeline.start().anew(refuses).pass(counter('tail', log))
  const decision = await pipeline.decide(arrival(), overtaking(log, 1))
  t.match(decision, { allowed: false, by: 'refuses', refusal: { reason: 'policy_denied' } })
  t.equal(log.at(-1), 'refused policy_denied by refuses')
})

await t.test('B1 what a plugin throws while it hears of the first judgement is reported', async (t) => {
  const faults: string[] = []
  const broken: Plugin<Arrival, object> = {
    name: 'broken',
    admit: () => ({}),
    settled: (_facts, { status }) => {
      if (status === 'refused') throw new Error('oops')
    },
  }
  const decision = await Pipeline.start().pass(broken).decide(arrival(), overtaking([], 1))
  decision.settled(ENDED, (by) => faults.push(by))
  t.strictSame(faults, ['broken'])
})
