import { draftOf } from '../../../db/audit/draft.ts'
import type { Entry } from '../../../db/audit/entry.ts'
import type { Ledger } from '../../../db/audit/ledger.ts'
import { decisionEntry, identity, type Judging, type Recorded } from '../../../plugins/audit/decision.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import type { Arrival } from '../../../plugins/plugin.ts'

/** What the record of calls took: a decision and an outcome each. */
export interface CallCost {
  readonly calls: number
  /** Making the decision row, its commitment included, until it is handed to the ledger's thread. µs. */
  readonly decisionUs: number
}

const ORIGIN = { stream: 'main', version: 'bench' }
const CALLS = 20_000
const CALLERS = 64
const JUDGING: Judging = {
  configDigest: 'ef'.repeat(32),
  mode: { egress_dpop_mode: 'optional', no_downgrade: false },
  checks: [],
}
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

/** Writes calls as agents make them to a ledger that is open and idle. */
export async function recordCalls(ledger: Ledger): Promise<CallCost> {
  let calls = 0
  const caller = async (): Promise<void> => {
    while (calls < CALLS) {
      calls += 1
      const facts = factsOf(calls)
      await ledger.commit({ entries: [decisionEntry(facts, 'allowed', JUDGING, null)] })
      await ledger.commit({ entries: [outcomeOf(facts)], lazy: true })
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  return { calls, decisionUs: decisionUs() }
}

function decisionUs(): number {
  const since = performance.now()
  for (let n = 0; n < CALLS; n += 1) draftOf(decisionEntry(factsOf(n), 'allowed', JUDGING, null), ORIGIN)
  return ((performance.now() - since) * 1_000) / CALLS
}

const outcomeOf = (facts: ReturnType<typeof factsOf>): Entry => ({
  ...identity(facts, JUDGING.configDigest),
  at: facts.at,
  status: 'success',
  provider: 'openai',
  detail: OUTCOME,
})

const KEY = Buffer.alloc(32, 7)
const BODY = Buffer.alloc(489, 'a')

/** The facts of a call that its row is made of; the others are not looked at. */
function factsOf(n: number): Arrival & Recorded {
  const id = `req_call${n.toString(16).padStart(28, '0')}`
  const principal = {
    ...{ id: 'acme::bench', ref: 'acme::bench', type: 'agent', capabilities: ['llm.chat'] },
    ...{ dpopJkt: null, previousDpopJkt: null, inGrace: false, revision: 3 },
  } as const
  const facts = {
    ...{ id, at: Date.now(), method: 'POST', path: '/v1/chat/completions', headers: {} },
    ...{ peer: { thumbprint: 'ab'.repeat(32) }, principal, commitments: commitmentsBy(KEY, id), proof: null },
    ...{ token: null, demand: { action: 'egress_llm_chat', demanded: ['llm.chat'] }, body: BODY },
    call: { model: 'gpt-5', tool: null, stream: false },
  }
  return facts as unknown as Arrival & Recorded
}
