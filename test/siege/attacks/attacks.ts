import { denied, heavyJson, oneByte, pipelined, proofs, unfinished } from './bodies.ts'
import { chains, connections, halves, herd, noTls } from './handshakes.ts'
import { guesses, heads, signals, slowReaders } from './heads.ts'
import type { Attack } from './target.ts'
import { answers, schemas, toolArguments } from './tools.ts'

/** Every attack, by the name that `--only` takes. */
export const ATTACKS = {
  chains,
  halves,
  connections,
  herd,
  'no-tls': noTls,
  'one-byte': oneByte,
  unfinished,
  pipelined,
  'heavy-json': heavyJson,
  denied,
  proofs,
  heads,
  guesses,
  'slow-readers': slowReaders,
  signals,
  answers,
  arguments: toolArguments,
  schemas,
} satisfies Record<string, Attack>

export type AttackName = keyof typeof ATTACKS

// The keys of an object literal.
export const ATTACK_NAMES = Object.keys(ATTACKS) as readonly AttackName[]
