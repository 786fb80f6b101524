import type { Identity } from '../../bench/ground/ground.ts'
import { PATH, requestBody } from '../../bench/load/messages.ts'
import { type Answer, asker, reasonOf } from './ask.ts'
import type { Kind } from './calls.ts'

export interface OperatorOf {
  readonly port: number
  readonly ca: string
  readonly adminSecret: string
  /** The agent whose capability is given and taken. */
  readonly agentId: string
  readonly agent: Identity
}

/** The least time between two changes of the operator. ms. */
const CHANGE_MS = 3_000

/** What the agent may be told while it has not the capability: before the call, or while it waits for its answer. */
const REFUSED = /"(capability_missing|authority_revoked)"/

/**
 * Makes the calls of an operator who gives and takes a capability and reads the ledger, and those of the agent that it is
 * about: whose calls must pass while it has the capability, and be refused while it has not.
 */
export function operatorKinds({ port, ca, adminSecret, agentId, agent }: OperatorOf): readonly Kind[] {
  const admin = asker(port, { ca })
  const calls = asker(port, agent)
  /** Whether the agent may call; null while that is being changed. `changes` tells two such times apart. */
  let [may, changes, changedAt]: [boolean | null, number, number] = [true, 0, 0]

  const change = async (): Promise<Answer> => {
    const next = may !== true
    ;[may, changes, changedAt] = [null, changes + 1, performance.now()]
    const answer = await admin({
      method: 'PATCH',
      path: `/v1/admin/agents/${encodeURIComponent(agentId)}/capabilities`,
      headers: { 'x-admin-secret': adminSecret },
      body: JSON.stringify({ capabilities: next ? ['llm.chat'] : [] }),
    })
    if (answer.status !== 200) throw new Error(`${answer.status} to a change`)
    may = next
    return answer
  }
  const list = async (): Promise<Answer> => {
    const path = '/v1/admin/audit?limit=100'
    const answer = await admin({ method: 'GET', path, headers: { 'x-admin-secret': adminSecret } })
    if (answer.status !== 200) throw new Error(`${answer.status} to a list`)
    return answer
  }
  const isDue = (): boolean => performance.now() - changedAt > CHANGE_MS
  return [
    { name: 'operator', share: 0.005, isAdmin: true, call: () => (isDue() ? change() : list()) },
    {
      name: 'granted and revoked',
      share: 0.045,
      call: async () => {
        const [before, expected] = [changes, may]
        const answer = await calls({ method: 'POST', path: PATH, body: requestBody('json') })
        const allowed = answer.status === 200
        if (!allowed && !REFUSED.test(answer.body)) throw new Error(`${answer.status} ${reasonOf(answer)}`)
        const settled = before === changes && expected !== null && may === expected
        if (settled && allowed !== expected)
          throw new Error(allowed ? 'SERVED AFTER REVOCATION' : 'refused after a grant')
        return answer
      },
    },
  ]
}
