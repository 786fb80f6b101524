import t from 'tap'
import { twoStages } from '../support/db/postgres/stages.ts'

t.test(
  'H11 an id that one replica’s answer has stated is known at the other with the next call',
  async (t) => {
    const { one, other } = await twoStages(t)
    let count = 0
    for (const { upstream } of [one, other])
      upstream.answer = (res) => {
        count += 1
        const answer = {
          id: `resp_${count}`,
          object: 'response',
          output: [],
          status: 'completed',
          store: true,
        }
        res.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
      }
    const alice = await one.enroll('alice', ['llm.chat'])
    const bob = await one.enroll('bob', ['llm.chat'])
    const body = { model: 'gpt-test', input: 'hi' }
    let [here, there] = [one, other]
    for (let turn = 0; turn < 6; turn += 1) {
      const { id } = (await here.call(alice, 'POST', '/v1/responses', { body })).json
      const next = { body: { ...body, previous_response_id: id } }
      t.equal((await there.call(alice, 'POST', '/v1/responses', next)).status, 200, `at once: ${id}`)
      t.match(await there.call(bob, 'POST', '/v1/responses', next), {
        status: 400,
        json: { reason: 'provider_state_refused' },
      })
      ;[here, there] = [there, here]
    }
  },
)
