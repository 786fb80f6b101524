import t from 'tap'
import { candidateWatch } from '../../../../db/ledger/rehearsal/candidate.ts'
import { BOT, chainOf, changed, decided, ended, loaded, started } from '../../../support/db/history.ts'

const SINCE = '2026-01-01T00:00:00.000Z'
const said = (verdict: string, more: object = {}) => ({ candidate: { since: SINCE, verdict, ...more } })
const REFUSE = said('refuse', { required_capability: 'llm.chat' })
const denied = (reason: string, more: object = {}) =>
  ({ status: 'denied', more: { reason, required_capability: 'llm.chat', ...more } }) as const

t.test('docs/rehearsal.md#candidates: what a candidate set would change, by its rows alone', async (t) => {
  const calls = [
    decided(1, { authority: REFUSE }),
    ended(decided(1)),
    decided(2, { authority: REFUSE }),
    decided(3, { authority: said('pass') }),
    decided(4, { ...denied('capability_missing'), authority: said('pass') }),
    decided(5, {
      ...denied('capability_missing', { summarised: { count: 40 } }),
      request_id: null,
      authority: said('pass'),
    }),
    decided(6, { ...denied('capability_missing'), authority: REFUSE }),
    decided(7, { ...denied('policy_denied'), authority: REFUSE }),
    decided(8, { ...denied('policy_denied'), authority: said('pass') }),
    // Of another set, of none, of nobody in particular, and what no row of ours says.
    decided(9, { authority: { candidate: { ...REFUSE.candidate, since: '2026-01-02T00:00:00.000Z' } } }),
    decided(10),
    decided(11, { principal_id: 'acme::other', authority: REFUSE }),
    decided(12, { authority: { candidate: 'refuse' } }),
    decided(13, { authority: said('maybe') }),
  ]
  const watch = candidateWatch(BOT, SINCE)
  for (const { leaf } of chainOf([started, loaded(), changed('agent.created', 1), ...calls])) watch.see(leaf)
  t.match(watch.result(), {
    decisions: 47,
    wouldRefuse: {
      decisions: 2,
      groups: [{ capability: 'llm.chat', reason: 'capability_missing', samples: ['req_1', 'req_2'] }],
    },
    wouldAllow: { decisions: 41, groups: [{ capability: 'llm.chat', decisions: 41, samples: ['req_4'] }] },
  })
})
