import { setTimeout as sleep } from 'node:timers/promises'
import { oneOf, type Random } from '../../../siege/attacks/target.ts'
import type { Identity } from '../../gateway.ts'
import { heldCall } from '../held-call.ts'
import { load, type Made } from '../load.ts'
import type { Replica } from '../replicas.ts'
import type { Scope } from '../scope.ts'
import type { Stage } from '../stage.ts'

const EVERY_MS = 2_000

/**
 * Takes an agent's capability away and gives it back, at random gateways, while it calls at all of them. What is served
 * that was sent behind the answer to a revocation is a violation.
 */
export function flipping(stage: Stage, bot: Identity, random: Random) {
  const loads = stage.replicas.map(({ url }) => load(stage, bot, { url, callers: 1, pauseMs: 200 }))
  const revoked: { begin: number; end: number }[] = []
  let going = true
  const set = async (capabilities: readonly string[]): Promise<number> => {
    const at = oneOf(random, stage.replicas as [Replica, ...Replica[]])
    // Refused or lost: nobody knows whether it holds.
    const asked = stage.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities }, at)
    return asked.then(
      ({ status }) => status,
      () => 0,
    )
  }
  const over = (async () => {
    while (going) {
      if ((await set([])) === 200) {
        const begin = performance.now()
        await sleep(EVERY_MS * random())
        revoked.push({ begin, end: performance.now() })
      }
      // Until it is known to hold again.
      while ((await set(['llm.chat'])) !== 200) await sleep(200)
      await sleep(EVERY_MS * random())
    }
  })()
  const made: Made[] = []
  const violations: string[] = []
  return {
    made,
    violations,
    count: () => revoked.length,
    stop: async () => {
      going = false
      await over
      await Promise.all(loads.map((way) => way.stop()))
      made.push(...loads.flatMap((way) => way.made))
      const served = made.filter(
        ({ status, sentAt, endedAt }) =>
          status === 200 && revoked.some(({ begin, end }) => sentAt > begin && endedAt < end),
      )
      violations.push(
        ...served.map(({ model }) => `B1: ${model} was served after its revocation was answered`),
      )
    },
  }
}

/** Callers that hang up in the middle of an answer (F-19). */
export function abandoning(scope: Scope, stage: Stage, bot: Identity, random: Random) {
  let [going, count] = [true, 0]
  const over = (async () => {
    while (going) {
      // One that is lost before it has begun is refused, or its gateway is gone.
      const call = await heldCall(scope, stage, bot, random() < 0.5 ? 'wait' : 'open', {
        name: 'door',
        url: stage.door.url,
      }).catch(() => null)
      await sleep(200 * random())
      call?.hangUp()
      if (call) count += 1
      await sleep(500 * random())
    }
  })()
  return {
    count: () => count,
    stop: async () => {
      going = false
      await over
    },
  }
}
