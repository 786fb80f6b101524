import fc from 'fast-check'
import t from 'tap'
import { OWN_AUTHORITY } from '../../plugins/call-authority.ts'
import { capabilityGate, routeDemand } from '../../plugins/capability.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { holderOf } from '../support/permit.ts'

const principal = (capabilities: readonly string[]) => holderOf(...capabilities)

const token = fc.stringMatching(/^[a-z_][a-z0-9_.]{0,12}$/)

await t.test(
  '§1 granted exactly where the required capability is in the set: for all sets and demands',
  (t) => {
    fc.assert(
      fc.property(fc.array(token, { maxLength: 64 }), token, fc.boolean(), (held, required, include) => {
        const set = include ? [...held, required] : held
        const facts = {
          holder: principal(set),
          target: null,
          token: null,
          authority: OWN_AUTHORITY,
          demand: { action: 'a', demanded: [required] },
        }
        let granted = false
        try {
          // A gate that answered later would have to be waited for here.
          granted = !(capabilityGate().admit(facts) instanceof Promise)
        } catch (error) {
          if (!(error instanceof Refusal) || error.reason !== 'capability_missing') throw error
        }
        return granted === set.includes(required)
      }),
      { numRuns: 5_000 },
    )
    t.end()
  },
)

await t.test('§7 the refusal says what is missing, to whom', (t) => {
  const facts = {
    holder: principal([]),
    target: null,
    token: null,
    authority: OWN_AUTHORITY,
    demand: { action: 'a', demanded: ['llm.chat'] },
  }
  t.throws(() => capabilityGate().admit(facts), {
    reason: 'capability_missing',
    status: 403,
    message: 'acme::bot does not hold the capability llm.chat. Ask an operator to grant it.',
    detail: { required_capability: 'llm.chat' },
  })
  t.end()
})

await t.test('a route states its demand', async (t) => {
  t.strictSame(await routeDemand('egress_llm_chat', 'llm.chat').admit({}), {
    demand: { action: 'egress_llm_chat', demanded: ['llm.chat'] },
  })
})
