import type { Identity } from '../../bench/ground/ground.ts'

/** The gateway under siege, as the attackers know it. */
export interface Target {
  readonly port: number
  readonly pid: number
  /** The environment and the directory of the gateway, by which its control socket is found. */
  readonly env: Readonly<Record<string, string>>
  readonly directory: string
  /** An agent that may call LLMs and tools of the hostile MCP servers. */
  readonly rogue: Identity
  /** An agent that may do nothing. */
  readonly empty: Identity
  /** The ids of the hostile MCP servers, by name. */
  readonly hostile: Readonly<Record<string, string>>
}

/** Numbers from 0 to below 1, the same for the same seed. */
export type Random = () => number

export interface Siege {
  readonly target: Target
  readonly random: Random
  /** Aborted when the attack's turn is over. */
  readonly signal: AbortSignal
  /** Counts one try. */
  readonly tried: () => void
}

/** Attacks until its signal is aborted, at a bounded rate. Rejects only where the attack itself is wrong. */
export type Attack = (siege: Siege) => Promise<void>

/** Makes a source of numbers (mulberry32). Not for secrets. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Chooses one of a list that is not empty. */
export function oneOf<T>(random: Random, list: readonly [T, ...T[]]): T {
  return list[Math.floor(random() * list.length)] ?? list[0]
}
