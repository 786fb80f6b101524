import { EMPTY_ROOT, leafHash, nodeHash } from './hashes.ts'
import { TILE_HEIGHT } from './tiles.ts'

/** A tree that grows leaf by leaf and keeps only what its root is made of: log2 of its size hashes. */
export interface CompactTree {
  readonly size: number
  add(leaf: string | Uint8Array): void
  /** Adds a leaf by its hash. */
  addHash(hash: Buffer): void
  /** The root of the last 256, 65,536, … leaves, as many as the last full tile of a level stands for. */
  rootOfTile(level: number): Buffer | undefined
  /** The root at the present size (RFC 6962, section 2.1). */
  root(): Buffer
}

export function compactTree(): CompactTree {
  // The roots of the perfect subtrees, largest first, each with the logarithm of the number of its leaves.
  const peaks: { hash: Buffer; height: number }[] = []
  const ofTiles: Buffer[] = []
  let size = 0

  function addHash(hash: Buffer): void {
    let grown = { hash, height: 0 }
    for (let last = peaks.at(-1); last?.height === grown.height; last = peaks.at(-1)) {
      peaks.pop()
      grown = { hash: nodeHash(last.hash, grown.hash), height: grown.height + 1 }
      if (grown.height % TILE_HEIGHT === 0) ofTiles[grown.height / TILE_HEIGHT - 1] = grown.hash
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
    rootOfTile: (level) => ofTiles[level],
    root: () =>
      peaks.length === 0
        ? EMPTY_ROOT
        : peaks.map(({ hash }) => hash).reduceRight((right, left) => nodeHash(left, right)),
  }
}
