import t from 'tap'
import { type Arrival, Pipeline, type Plugin, type Recorder, type Settlement } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { arrival } from '../support/plugins/arrival.ts'

const ENDED: Settlement = { at: 7, status: 'success', provider: 'openai', detail: { output_tokens: 12 } }

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
      'tokens settled req_test success {"output_tokens":12}',
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
  t.equal(log.at(-1), 'tokens settled req_test success {"output_tokens":12}')
})
