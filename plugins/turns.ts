import type { HangupSignal } from './arrival.ts'
import { Refusal } from './refusal.ts'

/*
 * Work that would hold up everybody else is done in slices, one in a turn of the loop, whoever's it is: a
 * hundred long bodies take as long as their sum, and each turn stays short (docs/threats.md#a5, #a6).
 */

/** Work in steps, each of them far shorter than a slice. */
export type WorkSteps<Result> = Generator<undefined, Result, undefined>

/** Work on so many bytes is done at once. */
export const BYTES_AT_ONCE = 65_536
/** A slice of work ends with the first step that ends after so long. ms. */
const SLICE_MS = 3

/** Does the work in slices. When `signal` fires it rejects with its Refusal, else `client_gone`. */
export async function runInSlices<Result>(work: WorkSteps<Result>, signal?: AbortSignal): Promise<Result> {
  for (;;) {
    await eventLoopTurn()
    if (signal?.aborted) {
      throw signal.reason instanceof Refusal ? signal.reason : new Refusal('client_gone')
    }
    const until = performance.now() + SLICE_MS
    do {
      const step = work.next()
      if (step.done) return step.value
    } while (performance.now() < until)
  }
}

/** The time that work took at once in this turn of the loop, whoever's it was. ms. */
let takenMs = 0

/**
 * Does the work at once if this turn of the loop has a slice left and nobody waits for one; what is left of it
 * then in slices, as {@link runInSlices} does.
 */
export function runPromptly<Result>(work: WorkSteps<Result>, hangup: HangupSignal): Result | Promise<Result> {
  if (hangup.gone || waitingTurns.length > 0 || takenMs >= SLICE_MS) return runInSlices(work, hangup.signal)
  if (takenMs === 0) setImmediate(endTurn)
  const begunAt = performance.now() - takenMs
  do {
    const step = work.next()
    takenMs = Math.max(performance.now() - begunAt, Number.MIN_VALUE)
    if (step.done) return step.value
  } while (takenMs < SLICE_MS)
  return runInSlices(work, hangup.signal)
}

const endTurn = (): void => {
  takenMs = 0
}

const waitingTurns: (() => void)[] = []

/** Resolves in a turn of the loop that nobody else has been given. First come, first served. */
export const eventLoopTurn = (): Promise<void> =>
  new Promise((resolve) => {
    waitingTurns.push(resolve)
    if (waitingTurns.length === 1) setImmediate(grantTurn)
  })

function grantTurn(): void {
  // Its work runs before the next callback of the loop; if it wants another turn, it comes last.
  waitingTurns.shift()?.()
  if (waitingTurns.length > 0) setImmediate(grantTurn)
}

/** Maps a list, and gives others their turn after each `atOnce` of its members. */
export async function mapInBatches<One, Shown>(
  list: readonly One[],
  atOnce: number,
  show: (one: One) => Shown,
): Promise<Shown[]> {
  const all: Shown[] = []
  for (const one of list) {
    all.push(show(one))
    if (all.length % atOnce === 0) await eventLoopTurn()
  }
  return all
}
