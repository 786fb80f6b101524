import { proof, proofSigner } from '../dpop.ts'
import { agentOf, ask, type Identity } from '../gateway.ts'
import { freshModel, PATH } from './load.ts'
import type { Scope } from './scope.ts'
import type { Stage } from './stage.ts'

/** What came of many copies of one proof. */
export interface Round {
  readonly model: string
  readonly passed: number
  readonly replayed: number
  /** Neither: the connection broke, or the database was away. */
  readonly unserved: number
  /** What those were told, once each. */
  readonly told: readonly string[]
  /** Sends the same proof once more. */
  readonly again: () => Promise<unknown>
}

export interface Storm {
  /** Sends copies of a fresh proof, all at once, each on a connection of its own that stays open from round to round. */
  readonly round: (meanwhile?: () => Promise<unknown>) => Promise<Round>
}

const PASSED = '200 '
const REPLAYED = '401 proof_invalid'

/** Opens connections through the door, which spreads them over the replicas. */
export async function storm(scope: Scope, stage: Stage, who: Identity, copies = 100): Promise<Storm> {
  const signer = proofSigner()
  const agents = Array.from({ length: copies }, () => agentOf(stage.ca, who, true))
  scope.teardown(() => {
    for (const agent of agents) agent.destroy()
  })
  const url = stage.door.url + PATH
  // What comes at once is to be judged at once, and not to wait for 100 handshakes.
  await Promise.all(agents.map((agent) => ask(`${stage.door.url}/health`, 'GET', { agent })))
  const [first] = agents
  const challenged = await ask(url, 'POST', {
    ...(first && { agent: first }),
    headers: { dpop: 'x' },
    body: {},
  })
  let nonce = challenged.headers['dpop-nonce']
  return {
    round: async (meanwhile = () => Promise.resolve()) => {
      const model = freshModel('proof')
      const used = {
        headers: { dpop: proof(signer, { htm: 'POST', htu: url, nonce }) },
        body: { model, messages: [] },
      }
      const send = async (agent: (typeof agents)[number]): Promise<string> => {
        try {
          const { status, headers, json } = await ask(url, 'POST', { agent, ...used })
          nonce = headers['dpop-nonce'] ?? nonce
          return `${status} ${json?.reason ?? ''}`
        } catch (error) {
          return String(error)
        }
      }
      const [answers] = await Promise.all([Promise.all(agents.map(send)), meanwhile()])
      const others = answers.filter((one) => one !== PASSED && one !== REPLAYED)
      const count = (answer: string): number => answers.filter((one) => one === answer).length
      const [passed, replayed] = [count(PASSED), count(REPLAYED)]
      return {
        model,
        passed,
        replayed,
        unserved: others.length,
        told: [...new Set(others)],
        again: () => send(first ?? agentOf(stage.ca, who)),
      }
    },
  }
}
