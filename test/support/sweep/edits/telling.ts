import { checkpointText } from '../../../../db/ledger/tree/checkpoint.ts'
import { cosignNote, noteOf, signNote } from '../../../../db/ledger/tree/note.ts'
import { compactTree } from '../../../../db/ledger/tree/walk.ts'
import type { Signer } from '../../sealed-log.ts'
import type { Kept, Ring, SealedLog } from '../life/log.ts'
import type { Chooser, Code } from './edit.ts'

/** What somebody says was kept of a log, and the exit code that is right for its honest rows. */
export interface Told {
  readonly kept?: string | Buffer
  readonly keys?: readonly string[]
  readonly witnesses?: readonly string[]
  readonly code: Code
}

export type KeptChange = (log: SealedLog, choose: Chooser, ring: Ring) => Told | null

export const exported = ({ lines }: SealedLog): string => lines.map((line) => `${line}\n`).join('')
export const vkeys = ({ keys }: SealedLog): readonly string[] => keys.map(({ vkey }) => vkey)
export const newest = ({ kept }: SealedLog): Kept => kept.at(-1) as Kept
export const keyOf = ({ keys }: SealedLog): Signer => keys[0] as Signer

/** A checkpoint that says anything, signed by whom one likes. */
export function claiming(
  key: Signer,
  size: number,
  root: Buffer,
  { origin = key.name, witness = null as Signer | null, more = [] as readonly string[] } = {},
): string {
  const text = checkpointText({ origin, size, root })
  const lines = [signNote(text, key.name, key.privateKey), ...more]
  if (witness) lines.push(cosignNote(text, witness.name, witness.privateKey, 1_790_000_000))
  return noteOf(text, lines)
}

export function rootOf(leaves: readonly string[]): Buffer {
  const tree = compactTree()
  for (const leaf of leaves) tree.add(leaf)
  return tree.root()
}

export const NO_ROOT = Buffer.alloc(32, 7)
