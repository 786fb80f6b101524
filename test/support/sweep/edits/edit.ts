import { anchorFile, type Ring, type SealedLog } from '../life/log.ts'

/** Chooses by a seed: the same choices for the same seed. */
export interface Chooser {
  /** 0 to below a number, which is at least 1. */
  readonly below: (count: number) => number
  readonly one: <Value>(list: readonly Value[]) => Value | undefined
}

export function chooser(seed: number): Chooser {
  let state = (seed ^ 0x9e3779b9) >>> 0
  const below = (count: number): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % count
  }
  return { below, one: (list) => list[below(Math.max(1, list.length))] }
}

/** The exit codes of docs/ledger.md#verifying. */
export type Code = 0 | 2 | 3 | 4 | 5 | 9

/** A file that is to be verified, what was kept elsewhere, and the exit code that is right. */
export interface Case {
  readonly file: string | Buffer
  /** Verifier keys of the log, and of witnesses. */
  readonly keys?: readonly string[]
  readonly witnesses?: readonly string[]
  /** The checkpoints that were kept. */
  readonly kept?: string | Buffer
  /** The body that a receipt must be about. */
  readonly body?: string | Buffer | undefined
  readonly code: Code
}

/** One way of forging, or of leaving honest: null where this history has nothing to do it to. */
export interface Edit {
  readonly name: string
  readonly make: (
    log: SealedLog,
    choose: Chooser,
    ring: Ring,
  ) => readonly Case[] | null | Promise<readonly Case[] | null>
}

/** What was kept elsewhere of a log. */
export const keptOf = ({ keys, kept }: SealedLog): Pick<Case, 'keys' | 'kept'> => ({
  keys: keys.map(({ vkey }) => vkey),
  kept: anchorFile(kept),
})

/** A forged export, by itself and held against what was kept elsewhere. */
export const aloneAndHeld = (
  log: SealedLog,
  file: string | Buffer,
  alone: Code,
  held: Code,
): readonly Case[] => [
  { file, code: alone },
  { file, ...keptOf(log), code: held },
]
