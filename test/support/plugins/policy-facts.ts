import type { CallPermit } from '../../../plugins/permit.ts'
import type { PolicyFacts } from '../../../plugins/policy/input.ts'
import { holderOf } from '../permit.ts'
import { arrival } from './arrival.ts'

/** What is known of a call when a policy is asked: by default an LLM call with nothing special. */
export function policyFacts(over: Partial<Omit<PolicyFacts, 'granted'>> = {}): PolicyFacts {
  const demand = { action: 'egress_llm_chat', demanded: ['llm.chat'] }
  const facts: Omit<PolicyFacts, 'granted'> = {
    ...arrival(),
    principal: holderOf('llm.chat', 'acme.special'),
    proof: null,
    token: null,
    demand,
    call: { model: 'gpt-test', tool: null, stream: false },
    ...over,
  }
  // Only the gate makes one, for who holds what is demanded; here the principal may hold anything.
  const granted = {
    kind: 'call',
    authority: facts.authority,
    principal: facts.principal,
    demand: facts.demand,
    target: null,
  } as CallPermit
  return { ...facts, granted }
}

/** The same for a call of a tool. */
export function toolFacts(over: Partial<Omit<PolicyFacts, 'granted'>> = {}): PolicyFacts {
  return policyFacts({
    demand: { action: 'mcp_tools_call', demanded: ['mcp.tools.call'] },
    call: { model: null, tool: 'payments.refund', stream: true },
    toolCall: {
      resource: 'payments',
      method: 'tools/call',
      arguments: { amount: 12, note: 'canary-argument' },
      argumentsSha256: () => 'ab'.repeat(32),
    },
    ...over,
  })
}
