// The attackers, a process of its own: it is told which attack begins and which ends.

import { setPriority } from 'node:os'
import { messageOf } from '../../db/support/error-message.ts'
import { ATTACKS, type AttackName } from './attacks/attacks.ts'
import { randomOf, type Target } from './attacks/target.ts'

/** What the attackers are told. */
export type Order =
  | { readonly kind: 'target'; readonly target: Target; readonly seed: number }
  | { readonly kind: 'begin'; readonly turn: number; readonly attack: AttackName }
  | { readonly kind: 'end'; readonly turn: number }

/** What the attackers say. */
export type Said =
  | { readonly kind: 'ready' }
  | { readonly kind: 'ended'; readonly turn: number; readonly tries: number }
  | { readonly kind: 'failed'; readonly message: string }

/** The gateway and its honest callers come first where the machine has too few cores for all. */
const LAST = 10

let target: Target | null = null
let random = randomOf(0)
const underWay = new Map<number, AbortController>()

const say = (said: Said): void => void process.send?.(said)

setPriority(LAST)
process.on('disconnect', () => process.exit(0))
process.on('SIGINT', () => {})
process.on('message', (order: Order) => {
  if (order.kind === 'target') [target, random] = [order.target, randomOf(order.seed)]
  else if (order.kind === 'end') underWay.get(order.turn)?.abort()
  else
    begin(order.turn, order.attack).catch((error: unknown) =>
      say({ kind: 'failed', message: messageOf(error) }),
    )
})
say({ kind: 'ready' })

async function begin(turn: number, attack: AttackName): Promise<void> {
  if (!target) throw new Error('an attack was begun before its target was told')
  const over = new AbortController()
  underWay.set(turn, over)
  let tries = 0
  const tried = (): void => {
    tries += 1
  }
  try {
    await ATTACKS[attack]({ target, random, signal: over.signal, tried })
  } catch (error) {
    throw new Error(`the attack ${attack} is wrong: ${messageOf(error)}`, { cause: error })
  } finally {
    underWay.delete(turn)
  }
  say({ kind: 'ended', turn, tries })
}
