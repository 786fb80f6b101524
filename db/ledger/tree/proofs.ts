import { type Checkpoint, parseCheckpoint } from './checkpoint.ts'
import { HASH_BYTES, leafHash, nodeHash } from './hashes.ts'
import { fromBase64, MalformedNote, parseNote, type SignedNote } from './note.ts'
import { largestPowerBelow, type ReadTile, subtreeRoot } from './tiles.ts'

const HEADER = 'c2sp.org/tlog-proof@v1'

/** A proof that a leaf is in a log, with the checkpoint that it leads to (C2SP tlog-proof). */
interface TlogProof {
  readonly index: number
  readonly hashes: readonly Buffer[]
  readonly note: SignedNote
  readonly checkpoint: Checkpoint
}

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

/** The hashes from a leaf to the root (RFC 6962, section 2.1.1), lowest first. */
export async function inclusionProof(
  read: ReadTile,
  index: number,
  size: number,
): Promise<readonly Buffer[]> {
  if (!(index >= 0 && index < size)) throw new RangeError(`no leaf ${index} in a tree of ${size}`)
  return path(read, index, 0, size)
}

async function path(read: ReadTile, index: number, from: number, until: number): Promise<readonly Buffer[]> {
  if (until - from === 1) return []
  const middle = from + largestPowerBelow(until - from)
  return index < middle
    ? [...(await path(read, index, from, middle)), await subtreeRoot(read, middle, until)]
    : [...(await path(read, index, middle, until)), await subtreeRoot(read, from, middle)]
}

/**
 * Proves that the newer tree begins with the older one (RFC 6962, section 2.1.2). None if either is empty, or
 * both are of one size.
 */
export async function consistencyProof(
  read: ReadTile,
  oldSize: number,
  newSize: number,
): Promise<readonly Buffer[]> {
  if (!(oldSize >= 0 && oldSize <= newSize)) throw new RangeError(`no proof from ${oldSize} to ${newSize}`)
  return oldSize === 0 || oldSize === newSize ? [] : subproof(read, oldSize, 0, newSize, true)
}

async function subproof(
  read: ReadTile,
  old: number,
  from: number,
  until: number,
  whole: boolean,
): Promise<readonly Buffer[]> {
  if (old === until) return whole ? [] : [await subtreeRoot(read, from, until)]
  const middle = from + largestPowerBelow(until - from)
  return old <= middle
    ? [...(await subproof(read, old, from, middle, whole)), await subtreeRoot(read, middle, until)]
    : [...(await subproof(read, old, middle, until, false)), await subtreeRoot(read, from, middle)]
}

/** The root that a proof of inclusion leads to; null if the proof is not of the length that it must have. */
export function rootByInclusion(
  leaf: Buffer,
  index: number,
  size: number,
  proof: readonly Buffer[],
): Buffer | null {
  if (!(index >= 0 && index < size)) return null
  // RFC 9162, section 2.1.3.2.
  let [fn, sn, root] = [index, size - 1, leaf]
  for (const hash of proof) {
    if (sn === 0) return null
    if (fn % 2 === 1 || fn === sn) {
      root = nodeHash(hash, root)
      while (fn % 2 === 0 && fn !== 0) [fn, sn] = [fn / 2, Math.floor(sn / 2)]
    } else {
      root = nodeHash(root, hash)
    }
    ;[fn, sn] = [Math.floor(fn / 2), Math.floor(sn / 2)]
  }
  return sn === 0 ? root : null
}

interface TreeHead {
  readonly size: number
  readonly root: Buffer
}

/** True if a proof shows that the newer tree begins with the older (RFC 9162, section 2.1.4.2). */
export function isConsistent(older: TreeHead, newer: TreeHead, proof: readonly Buffer[]): boolean {
  if (older.size > newer.size) return false
  if (older.size === newer.size) return proof.length === 0 && older.root.equals(newer.root)
  if (older.size === 0) return proof.length === 0
  let [fn, sn] = [older.size - 1, newer.size - 1]
  while (fn % 2 === 1) [fn, sn] = [Math.floor(fn / 2), Math.floor(sn / 2)]
  const [first, ...rest] = fn === 0 ? [older.root, ...proof] : proof
  if (first === undefined) return false
  let [before, after] = [first, first]
  for (const hash of rest) {
    if (sn === 0) return false
    if (fn % 2 === 1 || fn === sn) {
      before = nodeHash(hash, before)
      after = nodeHash(hash, after)
      while (fn % 2 === 0 && fn !== 0) [fn, sn] = [fn / 2, Math.floor(sn / 2)]
    } else {
      after = nodeHash(after, hash)
    }
    ;[fn, sn] = [Math.floor(fn / 2), Math.floor(sn / 2)]
  }
  return sn === 0 && before.equals(older.root) && after.equals(newer.root)
}
