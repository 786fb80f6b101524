import t from 'tap'
import { requestStates, type StateOwner } from '../../../../proxy/mcp/state/request-state.ts'
import { holderOf } from '../../../support/permit.ts'
import { refused } from '../../../support/refused.ts'

const principal = (id: string) => ({ ...holderOf(), id })
const OWNER: StateOwner = {
  principal: principal('acme::a'),
  resourceId: 'mcpr_1',
  method: 'tools/call',
  name: 'book',
}
const states = requestStates(Buffer.alloc(32, 1))
const SEALED = states.seal('step 2', OWNER)

await t.test('mrtr: a state comes back to the call that it was given to, as the upstream wrote it', (t) => {
  t.equal(states.open(SEALED, OWNER), 'step 2')
  t.equal(states.open(states.seal('', OWNER), OWNER), '')
  t.equal(requestStates(Buffer.alloc(32, 1)).open(SEALED, OWNER), 'step 2', 'also at another replica')
  t.end()
})

const others: Readonly<Record<string, Partial<StateOwner>>> = {
  'another principal': { principal: principal('acme::b') },
  'a user of the same id': { principal: { ...principal('acme::a'), type: 'user' } },
  'another resource': { resourceId: 'mcpr_2' },
  'another method': { method: 'prompts/get' },
  'another tool': { name: 'cancel' },
}
for (const [who, other] of Object.entries(others)) {
  await t.test(`threat 6: a state of one call is worth nothing to ${who}`, (t) => {
    t.throws(() => states.open(SEALED, { ...OWNER, ...other }), refused('mcp_params_invalid'))
    t.end()
  })
}

await t.test('threat 6: a state that was tampered with, cut, or made up is refused', (t) => {
  const bad = [
    `${SEALED}x`,
    SEALED.slice(1),
    SEALED.slice(0, -1),
    'step 2',
    '',
    `A${SEALED.slice(1)}`,
    'é'.repeat(60),
  ]
  for (const state of bad) t.throws(() => states.open(state, OWNER), refused('mcp_params_invalid'), state)
  t.throws(() => requestStates(Buffer.alloc(32, 2)).open(SEALED, OWNER), refused('mcp_params_invalid'))
  t.end()
})
