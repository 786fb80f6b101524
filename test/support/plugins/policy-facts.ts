import type { Granted } from '../../../plugins/facts.ts'
import type { PolicyFacts } from '../../../plugins/policy/input.ts'
import { arrival } from './arrival.ts'

/** What is known of a call when a policy is asked: by default an LLM call with nothing special. */
export function policyFacts(over: Partial<PolicyFacts> = {}): PolicyFacts {
  const demand = { action: 'egress_llm_chat', capability: 'llm.chat' }
  return {
    ...arrival(),
    principal: {
      id: 'acme::bot',
      type: 'agent',
      capabilities: ['llm.chat', 'acme.special'],
      dpopJkt: null,
      previousDpopJkt: null,
      inGrace: false,
    },
    proof: null,
    token: null,
    demand,
    // Only the gate makes one; a policy never looks at it.
    granted: demand as unknown as Granted,
    call: { model: 'gpt-test', tool: null, stream: false },
    ...over,
  }
}

/** The same for a call of a tool. */
export function toolFacts(over: Partial<PolicyFacts> = {}): PolicyFacts {
  return policyFacts({
    demand: { action: 'mcp_tools_call', capability: 'mcp.tools.call' },
    call: { model: null, tool: 'payments.refund', stream: true },
    toolCall: {
      resource: 'payments',
      method: 'tools/call',
      arguments: { amount: 12, note: 'canary-argument' },
      argumentsSha256: 'ab'.repeat(32),
    },
    ...over,
  })
}
