import { EMPTY_ROOT, HASH_BYTES, leafHash, nodeHash } from './hashes.ts'
import { peaksOf, TILE_HEIGHT, TILE_WIDTH, type TilePlace, type TreeEdge, type TreePeak } from './tiles.ts'

/** A tree that grows leaf by leaf and keeps only what its root is made of: log2 of its size hashes. */
interface CompactTree {
  readonly size: number
  add(leaf: string | Uint8Array): void
  addHash(hash: Buffer): void
  /** The root of the last 256, 65,536, … leaves, as many as the last full tile of a level stands for. */
  rootOfTile(level: number): Buffer | undefined
  /** The root at the present size (RFC 6962, section 2.1). */
  root(): Buffer
}

export function compactTree(start: TreeStart = EMPTY_START): CompactTree {
  const peaks: TreePeak[] = [...peaksOf(start.edge)]
  const ofTiles: Buffer[] = []
  let { size } = start

  function addHash(hash: Buffer): void {
    let grown: TreePeak = { hash, height: 0 }
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

/** The leaves before the first that a walk sees, by the edge of their tree. */
export interface TreeStart {
  readonly size: number
  readonly edge: TreeEdge
}

const EMPTY_START: TreeStart = { size: 0, edge: [] }

export interface ClaimedCheckpoint {
  readonly size: number
  /** base64. */
  readonly root: string
}

export interface StoredTreeParts {
  /** The checkpoints in the order of their sizes. May be long. */
  readonly checkpoints: AsyncIterator<ClaimedCheckpoint> | Iterator<ClaimedCheckpoint>
  /** Stored tiles: the size they go up to, and the hashes of one; null if it is missing. */
  readonly tiles?: {
    readonly size: number
    readonly read: (place: TilePlace) => Uint8Array | null | Promise<Uint8Array | null>
  }
  /** Absent: the first row is the first leaf. */
  readonly start?: TreeStart | undefined
}

export interface TreeWalkResult {
  readonly rows: number
  /** Checkpoints whose root is that of the rows. */
  readonly checkpoints: number
  readonly tiles: number
  /** The largest checkpoint that fits; null if there is none. */
  readonly newest: ClaimedCheckpoint | null
  /** The first fault, as a sentence; null if there is none. */
  readonly problem: string | null
  /** The first checkpoint of more rows than there are. */
  readonly beyond: ClaimedCheckpoint | null
}

/** Holds rows against the stored parts of their tree, in one pass, in memory of the tree's height. */
export interface TreeWalk {
  /** Takes the hash of the next leaf. Returns a promise if something must be read first. */
  add(hash: Buffer): Promise<void> | undefined
  end(): Promise<TreeWalkResult>
}

export function treeWalk({ checkpoints, tiles: stored, start = EMPTY_START }: StoredTreeParts): TreeWalk {
  const tree = compactTree(start)
  const levels: Buffer[][] = start.edge.map((hashes) =>
    Array.from({ length: hashes.length / HASH_BYTES }, (_, n) =>
      hashes.subarray(n * HASH_BYTES, (n + 1) * HASH_BYTES),
    ),
  )
  let claimed: ClaimedCheckpoint | null | undefined
  let [fitting, whole] = [0, 0]
  let newest: ClaimedCheckpoint | null = null
  let problem: string | null = null

  const fault = (sentence: string): void => {
    problem ??= sentence
  }

  async function compare(level: number, n: number, hashes: readonly Buffer[]): Promise<void> {
    const found = await stored?.read({ level, n })
    const made = Buffer.concat(hashes)
    // The last one may have grown meanwhile. A full one cannot; and a database may hold anything in its
    // place.
    const isWhole =
      found instanceof Uint8Array && (hashes.length < TILE_WIDTH || found.length === made.length)
    if (isWhole && made.equals(found.subarray(0, made.length))) whole += 1
    else fault(`tile ${level}/${n} is not that of the rows`)
  }

  /** Puts a hash at a level; a full tile is compared, and its root put above. */
  async function put(level: number, hash: Buffer): Promise<void> {
    levels[level] ??= []
    const hashes = levels[level]
    hashes.push(hash)
    if (hashes.length < TILE_WIDTH) return
    levels[level] = []
    await compare(level, countAt(tree.size, level) / TILE_WIDTH - 1, hashes)
    const root = tree.rootOfTile(level)
    if (root) await put(level + 1, root)
  }

  async function meet(): Promise<void> {
    if (claimed === undefined) claimed = await nextOf(checkpoints)
    while (claimed && claimed.size <= tree.size) {
      const { size, root } = claimed
      // The rows under it are not here.
      if (size > 0 && size < start.size) {
        claimed = await nextOf(checkpoints)
        continue
      }
      const fits = size === 0 ? root === NO_ROWS : size === tree.size && rootOf(tree) === root
      if (fits) [fitting, newest] = [fitting + 1, claimed]
      else fault(`the checkpoint of ${size} rows has another root than the rows`)
      claimed = await nextOf(checkpoints)
    }
  }

  const isTiled = (): boolean => stored !== undefined && tree.size <= stored.size

  async function grow(hash: Buffer): Promise<void> {
    if (isTiled()) await put(0, hash)
    if (tree.size === stored?.size) await compareEdge()
    await meet()
  }

  async function compareEdge(): Promise<void> {
    for (const [level, hashes] of levels.entries()) {
      if (hashes.length > 0) await compare(level, Math.floor(countAt(tree.size, level) / TILE_WIDTH), hashes)
    }
  }

  /** Meets the checkpoints of no more rows than there were before the first. */
  async function begin(hash: Buffer): Promise<void> {
    await meet()
    await add(hash)
  }

  function add(hash: Buffer): Promise<void> | undefined {
    if (claimed === undefined) return begin(hash)
    tree.addHash(hash)
    // Most rows complete no tile and end no checkpoint: nothing is waited for.
    const meets = claimed !== null && claimed.size <= tree.size
    const last = levels[0] ?? []
    if (meets || last.length + 1 === TILE_WIDTH || tree.size === stored?.size) return grow(hash)
    if (isTiled()) {
      levels[0] = last
      last.push(hash)
    }
    return undefined
  }

  return {
    add,
    end: async () => {
      await meet()
      return { rows: tree.size, checkpoints: fitting, tiles: whole, newest, problem, beyond: claimed ?? null }
    },
  }
}

const NO_ROWS = EMPTY_ROOT.toString('base64')

const countAt = (size: number, level: number): number => Math.floor(size / TILE_WIDTH ** level)

const rootOf = (tree: CompactTree): string => tree.root().toString('base64')

async function nextOf(checkpoints: StoredTreeParts['checkpoints']): Promise<ClaimedCheckpoint | null> {
  const { done, value } = await checkpoints.next()
  return done ? null : value
}
