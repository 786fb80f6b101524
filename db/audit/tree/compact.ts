import { EMPTY_ROOT, leafHash, nodeHash } from './hashes.ts'

/** A tree that grows leaf by leaf and keeps only what its root is made of: log2 of its size hashes. */
export interface CompactTree {
  readonly size: number
  add(leaf: string | Uint8Array): void
  /** Adds a leaf by its hash. */
  addHash(hash: Buffer): void
  /** The root at the present size (RFC 6962, section 2.1). */
  root(): Buffer
}

export function compactTree(): CompactTree {
  // The roots of the perfect subtrees, largest first, each with the number of its leaves.
  const peaks: { hash: Buffer; leaves: number }[] = []
  let size = 0

  function addHash(hash: Buffer): void {
    let grown = { hash, leaves: 1 }
    for (let last = peaks.at(-1); last?.leaves === grown.leaves; last = peaks.at(-1)) {
      peaks.pop()
      grown = { hash: nodeHash(last.hash, grown.hash), leaves: grown.leaves * 2 }
    }
    peaks.push(grown)
    size += 1
  }

  return {
    get size() {
      return size
    },
    add: (leaf) => addHash(leafHash(leaf)),
    addHash,
    root: () =>
      peaks.length === 0
        ? EMPTY_ROOT
        : peaks.map(({ hash }) => hash).reduceRight((right, left) => nodeHash(left, right)),
  }
}
