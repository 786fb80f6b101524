import { type Checkpoint, parseCheckpoint } from './checkpoint.ts'
import { HASH_BYTES, leafHash } from './hashes.ts'
import { fromBase64, MalformedNote, parseNote, type SignedNote } from './note.ts'
import { rootByInclusion } from './proofs.ts'

const HEADER = 'c2sp.org/tlog-proof@v1'

/** A proof that a leaf is in a log, with the checkpoint that it leads to (C2SP tlog-proof). */
export interface TlogProof {
  readonly index: number
  readonly hashes: readonly Buffer[]
  readonly note: SignedNote
  readonly checkpoint: Checkpoint
}

/** The text of a proof. `note`: the checkpoint, signed. */
export const tlogProofText = (index: number, hashes: readonly Buffer[], note: string): string =>
  [HEADER, `index ${index}`, ...hashes.map((hash) => hash.toString('base64')), '', note].join('\n')

// The longest path in a tree of 2^63 leaves.
const MAX_INCLUSION_HASHES = 63

/** Reads the text of a proof. Verifies nothing. Throws {@link MalformedNote}. */
export function parseTlogProof(text: string): TlogProof {
  const at = text.indexOf('\n\n')
  const [header, ...lines] = text.slice(0, Math.max(at, 0)).split('\n')
  if (header !== HEADER) throw new MalformedNote(`a proof begins with ${HEADER}`)
  if (lines[0]?.startsWith('extra ')) fromBase64((lines.shift() ?? '').slice('extra '.length))
  const [, index] = /^index (0|[1-9][0-9]{0,15})$/.exec(lines[0] ?? '') ?? []
  const hashes = lines.slice(1).map(fromBase64)
  if (
    index === undefined ||
    hashes.length > MAX_INCLUSION_HASHES ||
    hashes.some(({ length }) => length !== HASH_BYTES)
  )
    throw new MalformedNote(
      'a proof is an index, hashes of 32 bytes in base64, an empty line and a checkpoint',
    )
  const note = parseNote(text.slice(at + 2))
  return { index: Number(index), hashes, note, checkpoint: parseCheckpoint(note.text) }
}

/** True if a proof leads to the root of its checkpoint. Does NOT verify the signatures. */
export function provesLeaf({ index, hashes, checkpoint }: TlogProof, leaf: string | Uint8Array): boolean {
  const root = rootByInclusion(leafHash(leaf), index, checkpoint.size, hashes)
  return root?.equals(checkpoint.root) ?? false
}
