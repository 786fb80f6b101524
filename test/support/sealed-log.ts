import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { checkpointText } from '../../db/ledger/tree/checkpoint.ts'
import { leafHash } from '../../db/ledger/tree/hashes.ts'
import { cosignNote, noteOf, signNote, verifierKeyText } from '../../db/ledger/tree/note.ts'
import { inclusionProof, tlogProofText } from '../../db/ledger/tree/proofs.ts'
import { extendTree, type ReadTile } from '../../db/ledger/tree/tiles.ts'
import { compactTree } from '../../db/ledger/tree/walk.ts'

export const ORIGIN = 'example.org/acme/audit'

/** A key that signs, by its verifier key. */
export interface Signer {
  readonly vkey: string
  readonly privateKey: KeyObject
  readonly name: string
}

export function signer(name = ORIGIN, kind: 'log' | 'witness' = 'log'): Signer {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  return { name, privateKey, vkey: verifierKeyText(name, kind, publicKey) }
}

/** A checkpoint over leaves, signed; `witness` cosigns it at an instant in s. */
export function checkpointOver(
  leaves: readonly string[],
  by: Signer,
  cosigned?: { readonly witness: Signer; readonly at: number },
): string {
  const tree = compactTree()
  for (const leaf of leaves) tree.add(leaf)
  const text = checkpointText({ origin: by.name, size: leaves.length, root: tree.root() })
  const lines = [signNote(text, by.name, by.privateKey)]
  if (cosigned) lines.push(cosignNote(text, cosigned.witness.name, cosigned.witness.privateKey, cosigned.at))
  return noteOf(text, lines)
}

/** A receipt about some of the leaves of a log. */
export async function receiptOver(
  leaves: readonly string[],
  about: readonly number[],
  note: string,
  salts: Readonly<Record<string, string>>,
) {
  const { tiles } = extendTree(0, [], Buffer.concat(leaves.map(leafHash)))
  const read: ReadTile = async ({ level, n }, width) => {
    const tile = tiles.find((each) => each.level === level && each.n === n)
    if (!tile) throw new Error(`no tile ${level}/${n}`)
    return tile.hashes.subarray(0, width * 32)
  }
  const rows = []
  for (const index of about) {
    const leaf = leaves[index] ?? ''
    const { stream, seq } = JSON.parse(leaf)
    const hashes = await inclusionProof(read, index, leaves.length)
    rows.push({ leaf, stream, seq, proof: tlogProofText(index, hashes, note) })
  }
  return { rows, salts }
}
