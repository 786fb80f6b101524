import t from 'tap'
import { twoStages } from '../support/db/postgres/stages.ts'
import { CHAT, type Identity } from '../support/gateway.ts'
import type { Stage } from '../support/mcp/stage.ts'

const STOPS = '/v1/admin/stops'
const ROUNDS = 12
const CALLERS = 40

const begin = async (stage: Stage, scope: unknown): Promise<string> => {
  const { status, json } = await stage.admin('POST', STOPS, { scope, reason: 'a key has leaked' })
  if (status !== 201) throw new Error(`the stop was answered ${status}`)
  return json.stop_id
}

// Each gateway's end of the test recomputes every decision from the rows: an allowed one behind a stop fails it.
t.test(
  'no allowed row stands behind a stop of its scope, while callers of two gateways go on and stops come and go',
  async (t) => {
    const { one, other } = await twoStages(t)
    const bots = await Promise.all(['a', 'b'].map((name) => one.enroll(name, ['llm.chat'])))
    const chat = (stage: Stage, bot: Identity) =>
      stage.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    const stages = [one, other] as const
    const statuses = new Map<number, number>()
    let isOver = false
    const caller = async (n: number): Promise<void> => {
      const [stage = one, bot = bots[0]] = [stages[n % 2], bots[(n >> 1) % 2]]
      if (!bot) throw new Error('nobody calls')
      while (!isOver) {
        const { status } = await chat(stage, bot)
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
    }
    const callers = Array.from({ length: CALLERS }, (_, n) => caller(n))
    const scopes = ['all', 'llm', { principal: bots[0]?.id }, { kind: 'agents' }, 'mcp']
    for (let round = 0; round < ROUNDS; round += 1) {
      const [here, there] = round % 2 === 0 ? [one, other] : [other, one]
      const id = await begin(here, scopes[round % scopes.length])
      const [bot] = bots
      if (!bot) throw new Error('nobody calls')
      const isRefused = scopes[round % scopes.length] !== 'mcp'
      const answers = await Promise.all([chat(here, bot), chat(there, bot)])
      t.same(
        answers.map(({ status }) => status),
        isRefused ? [403, 403] : [200, 200],
        `round ${round}`,
      )
      t.equal((await there.admin('POST', `${STOPS}/${id}/end`, { reason: 'over' })).status, 204)
      t.equal((await chat(here, bot)).status, 200, 'after its end')
    }
    isOver = true
    await Promise.all(callers)
    t.same(
      [...statuses.keys()].toSorted((a, b) => a - b),
      [200, 403],
      'some were allowed and some stopped',
    )
  },
)
