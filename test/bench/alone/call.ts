import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import {
  callIdentity,
  type DecisionFacts,
  decisionEntry,
  type JudgingRules,
  type RecordedRefusal,
} from '../../../plugins/audit/decision.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import type { Arrival } from '../../../plugins/plugin.ts'

/** Whose call it is, of what, and when. */
export interface MadeCall {
  /** Its number: of no other call. */
  readonly n: number
  /** ms since the epoch. */
  readonly at: number
  /** The caller's name, its state's revision, and the digest of its certificate. */
  readonly caller: { readonly id: string; readonly revision: number; readonly thumbprint: string }
  readonly model: string
}

const KEY = Buffer.alloc(32, 7)
const BODY = Buffer.alloc(489, 'a')

/** The decision row of an LLM call, as the gateway makes it. */
export const decisionOf = (
  call: MadeCall,
  judging: JudgingRules,
  why: RecordedRefusal | null = null,
): LedgerEntry => decisionEntry(factsOf(call), why === null ? 'allowed' : 'denied', judging, why)

/** The row of its outcome. */
export const outcomeOf = (call: MadeCall, { configDigest }: JudgingRules): LedgerEntry => ({
  ...callIdentity(factsOf(call), configDigest),
  at: call.at,
  status: 'success',
  provider: 'openai',
  detail: OUTCOME,
})

const OUTCOME = {
  ...{ http_status: 200, ending: 'complete', response_bytes: 612, latency_ms: 812 },
  ...{
    upstream_status: 200,
    upstream_request_id: 'req_0123456789abcdef',
    upstream_model: 'gpt-5-2026-01-01',
  },
  tokens: { input: 120, output: 80, cache_read: 0, reasoning: 0 },
  attempts: [{ provider: 'openai', status: 200 }],
}

/** The facts of a call that its rows are made of; the others are not looked at. */
function factsOf({ n, at, caller, model }: MadeCall): Arrival & DecisionFacts {
  const id = `req_call${n.toString(16).padStart(28, '0')}`
  const principal = {
    ...{ id: caller.id, ref: caller.id, type: 'agent', capabilities: ['llm.chat'] },
    ...{ dpopJkt: null, previousDpopJkt: null, inGrace: false, revision: caller.revision },
  } as const
  const facts = {
    ...{ id, at, method: 'POST', path: '/v1/chat/completions', headers: {} },
    ...{
      peer: { thumbprint: caller.thumbprint },
      principal,
      commitments: commitmentsBy(KEY, id),
      proof: null,
    },
    ...{ token: null, demand: { action: 'egress_llm_chat', demanded: ['llm.chat'] }, body: BODY },
    call: { model, tool: null, stream: false },
  }
  return facts as unknown as Arrival & DecisionFacts
}
