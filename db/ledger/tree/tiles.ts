import { HASH_BYTES, nodeHash, perfectRoot } from './hashes.ts'

/** The hashes in a tile that is full (C2SP tlog-tiles). */
export const TILE_WIDTH = 256
const FULL = TILE_WIDTH * HASH_BYTES
export const TILE_HEIGHT = 8

/** The place of a tile: level 0 holds the hashes of leaves, each next one the roots of 256 of those below. */
export interface TilePlace {
  readonly level: number
  /** From 0. */
  readonly n: number
}

export interface TreeTile extends TilePlace {
  /** 1 to 256 hashes, one after the other. */
  readonly hashes: Buffer
}

export type ReadTile = (place: TilePlace, width: number) => Promise<Buffer>

/** The last tile of each level, as far as it is not full: a tree needs them to grow. */
export type TreeEdge = readonly Buffer[]

/** The places and widths of the edge of a tree of a size; a level without a partial tile has none. */
export function edgeOf(size: number): readonly (TilePlace & { readonly width: number })[] {
  const places = []
  for (let [level, count] = [0, size]; count > 0; level += 1, count = Math.floor(count / TILE_WIDTH)) {
    const width = count % TILE_WIDTH
    places.push({ level, n: Math.floor(count / TILE_WIDTH), width })
  }
  return places
}

/**
 * Appends leaves to a tree of a size. Returns the changed tiles, whole, and the edge and root of the larger
 * tree.
 */
export function extendTree(
  size: number,
  edge: TreeEdge,
  hashes: Buffer,
): { readonly tiles: readonly TreeTile[]; readonly edge: TreeEdge; readonly root: Buffer } {
  const tiles: TreeTile[] = []
  const next: Buffer[] = []
  let [added, before] = [hashes, size]
  for (let level = 0; added.length > 0 || before > 0; level += 1) {
    const grown = Buffer.concat([edge[level] ?? Buffer.alloc(0), added])
    const first = Math.floor(before / TILE_WIDTH)
    const roots: Buffer[] = []
    for (let at = 0; at < grown.length && added.length > 0; at += FULL) {
      const tile = Buffer.from(grown.subarray(at, at + FULL))
      tiles.push({ level, n: first + at / FULL, hashes: tile })
      if (tile.length === FULL) roots.push(perfectRoot(tile))
    }
    next.push(Buffer.from(grown.subarray(roots.length * FULL)))
    added = Buffer.concat(roots)
    before = first
  }
  return { tiles, edge: next, root: rootOf(next) }
}

/** The root of a tree by its edge. Throws a RangeError for a tree without leaves. */
export function rootOf(edge: TreeEdge): Buffer {
  const peaks = peaksOf(edge)
  if (peaks.length === 0) throw new RangeError('a tree without leaves has no tiles')
  return peaks.map(({ hash }) => hash).reduceRight((right, left) => nodeHash(left, right))
}

/** The root of a perfect subtree of 2^height leaves. */
export interface TreePeak {
  readonly hash: Buffer
  readonly height: number
}

/** The roots of the perfect subtrees that a tree is made of, largest first. */
export const peaksOf = (edge: TreeEdge): readonly TreePeak[] =>
  edge
    .flatMap((hashes, level) => [{ hashes, level }])
    .toReversed()
    .flatMap(peaksIn)

function peaksIn({
  hashes,
  level,
}: {
  readonly hashes: Buffer
  readonly level: number
}): readonly TreePeak[] {
  const peaks: TreePeak[] = []
  let at = 0
  for (let height = TILE_HEIGHT - 1; height >= 0; height -= 1) {
    const length = 2 ** height * HASH_BYTES
    if (hashes.length - at < length) continue
    const hash = perfectRoot(hashes.subarray(at, at + length))
    peaks.push({ hash, height: level * TILE_HEIGHT + height })
    at += length
  }
  return peaks
}

/**
 * The root of leaves `from` to `until`, exclusive (RFC 6962, section 2.1). `from` is a multiple of the next
 * power of two that holds the range.
 */
export async function subtreeRoot(read: ReadTile, from: number, until: number): Promise<Buffer> {
  const count = until - from
  const half = largestPowerBelow(count)
  if (half * 2 !== count && count !== 1) {
    const left = await subtreeRoot(read, from, from + half)
    return nodeHash(left, await subtreeRoot(read, from + half, until))
  }
  const height = Math.log2(count)
  const level = Math.floor(height / TILE_HEIGHT)
  const below = TILE_WIDTH ** level
  const [first, wide] = [from / below, count / below]
  const at = first % TILE_WIDTH
  const tile = await read({ level, n: Math.floor(first / TILE_WIDTH) }, at + wide)
  return perfectRoot(tile.subarray(at * HASH_BYTES, (at + wide) * HASH_BYTES))
}

/** The largest power of two below a number; 1 of 1. */
export function largestPowerBelow(count: number): number {
  let power = 1
  while (power * 2 < count) power *= 2
  return power
}

/** The path of a tile after `tile/` (C2SP tlog-tiles): three digits of its number in each segment. */
export function tilePath({ level, n }: TilePlace, width: number): string {
  const digits = String(n)
  const padded = digits.padStart(Math.ceil(digits.length / 3) * 3, '0')
  const groups = padded.match(/.{3}/g) ?? []
  const name = groups.map((group, index) => (index < groups.length - 1 ? `x${group}` : group)).join('/')
  return `${level}/${name}${width < TILE_WIDTH ? `.p/${width}` : ''}`
}

export const hashesAt = (size: number, level: number): number => Math.floor(size / TILE_WIDTH ** level)
