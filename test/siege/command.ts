import type { Order, Said } from './attackers.ts'
import type { AttackName } from './attacks/attacks.ts'
import type { Stage } from './stage.ts'

/** The time that attackers may take to end a turn. ms. */
const END_MS = 20_000

/** The command over the attackers. */
export interface Command {
  /** The tries of each attack that had a turn. */
  readonly tries: Readonly<Record<string, number>>
  /** Rejects where an attack is wrong. */
  readonly failed: Promise<never>
  /** Begins a turn. The function that it returns ends it. */
  readonly begin: (attack: AttackName) => () => Promise<void>
}

/** Tells the attackers their target. */
export function commandOf({ attackers: { process: child }, target }: Stage, seed: number): Command {
  const tries: Record<string, number> = {}
  const ended = new Map<number, PromiseWithResolvers<number>>()
  const failed = Promise.withResolvers<never>()
  // Whoever awaits it hears it.
  failed.promise.catch(() => {})
  const order = (what: Order): void => void child.send(what)
  child.on('message', (said: Said) => {
    if (said.kind === 'failed') failed.reject(new Error(said.message))
    if (said.kind === 'ended') ended.get(said.turn)?.resolve(said.tries)
  })
  order({ kind: 'target', target, seed })
  const begin = (attack: AttackName) => {
    const turn = ended.size
    const over = Promise.withResolvers<number>()
    ended.set(turn, over)
    order({ kind: 'begin', turn, attack })
    return async (): Promise<void> => {
      const late = setTimeout(() => over.reject(new Error(`the attack ${attack} does not end`)), END_MS)
      order({ kind: 'end', turn })
      const made = await over.promise
      clearTimeout(late)
      tries[attack] = (tries[attack] ?? 0) + made
    }
  }
  return { tries, failed: failed.promise, begin }
}
