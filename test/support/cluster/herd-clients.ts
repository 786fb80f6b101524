import { Agent } from 'node:https'
import { setTimeout as sleep } from 'node:timers/promises'
import { createSecureContext, type SecureContext } from 'node:tls'
import { type ProofSigner, proof, proofSigner } from '../dpop.ts'
import { ask, type Identity } from '../gateway.ts'
import { callClock, callOnce, freshModel, type Made, PATH } from './load.ts'

/** What the process of the clients is told. */
export interface HerdPlan {
  readonly size: number
  readonly bots: readonly Identity[]
  readonly at: readonly { readonly name: string; readonly url: string }[]
  /** The address that proofs are for. */
  readonly door: string
  /** The origin of the clock that times of tries are told by. */
  readonly timeOrigin: number
}

/** A try of a client, and the replica that it was made at. */
export interface HerdTry extends Made {
  readonly at: string
}

/** The time in which every client must have been served, tries that broke included. ms. */
const ALL_IN_MS = 120_000

process.once('message', (plan: HerdPlan) => {
  void herdOf(plan).then((tries) => process.send?.(tries, () => process.disconnect()))
})

async function herdOf({ size, bots, at, door, timeOrigin }: HerdPlan): Promise<readonly HerdTry[]> {
  const known = bots.map((who) => ({
    who,
    secureContext: createSecureContext({ cert: who.cert, key: who.key, ecdhCurve: 'P-256' }),
  }))
  // Made before an outage.
  const signers = Array.from({ length: size }, proofSigner)
  const tries: HerdTry[] = []
  const ahead = performance.timeOrigin - timeOrigin
  const end = callClock() + ALL_IN_MS
  let served = 0
  const client = async (signer: ProofSigner, n: number): Promise<void> => {
    const bot = known[n % known.length]
    for (let turn = n; bot && callClock() < end; turn += 1) {
      const replica = at[turn % at.length]
      if (!replica) return
      const from = `127.0.${1 + (n % 40)}.${1 + (n % 250)}`
      const made = await firstCall(replica.url, bot, from, (nonce) =>
        proof(signer, { htm: 'POST', htu: door + PATH, nonce }),
      )
      const times = { sentAt: made.sentAt + ahead, endedAt: made.endedAt + ahead }
      tries.push({ ...made, ...times, at: replica.name })
      if (made.status > 0 && made.status !== 503) {
        served += 1
        process.send?.(served)
        return
      }
      // Comes again elsewhere, as clients should.
      await sleep(100 + Math.random() * 900)
    }
  }
  await Promise.all(signers.map(client))
  return tries
}

/** Asks for a nonce by a proof that has none, and calls with one that has. */
async function firstCall(
  url: string,
  { who, secureContext }: { readonly who: Identity; readonly secureContext: SecureContext },
  localAddress: string,
  dpopOf: (nonce?: string) => string,
): Promise<Made> {
  // To look at the gateway's certificate is half of a client's work, and none of the gateway's.
  const agent = new Agent({
    secureContext,
    localAddress,
    keepAlive: true,
    maxSockets: 1,
    rejectUnauthorized: false,
  })
  const model = freshModel('herd')
  const sentAt = callClock()
  const ended = (status: number, reason: string | null): Made => {
    const how = { status, reason, receipt: null }
    return { model, by: who.id, sentAt, endedAt: callClock(), ...how }
  }
  const body = { model, messages: [] }
  try {
    const asked = await ask(url + PATH, 'POST', { agent, headers: { dpop: dpopOf() }, body })
    const nonce = asked.headers['dpop-nonce']
    if (asked.status !== 401 || typeof nonce !== 'string')
      return ended(asked.status, asked.json?.error?.code ?? null)
    return await callOnce(url, who, agent, { dpop: dpopOf(nonce) }, model)
  } catch {
    return ended(0, null)
  } finally {
    agent.destroy()
  }
}
