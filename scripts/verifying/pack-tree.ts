import { HASH_BYTES, perfectRoot } from '../../db/ledger/tree/hashes.ts'
import type { TreeInspection, TreeVerdict } from '../../db/ledger/tree/inspect.ts'
import { MalformedNote } from '../../db/ledger/tree/note.ts'
import { TILE_WIDTH } from '../../db/ledger/tree/tiles.ts'
import {
  isSignedBy,
  type LogTrust,
  NO_STAMPS,
  type SignedCheckpoint,
  sinceFaults,
  type WitnessSummary,
  witnessesOf,
} from '../../db/ledger/tree/trusted.ts'
import { type EvidencePack, rootAt } from './pack.ts'

/**
 * Compares the rows of a pack with its tiles, and its checkpoints with those. `note`: called with each
 * omitted comparison.
 */
export function packTree(
  pack: EvidencePack,
  trusted: LogTrust,
  note: (sentence: string) => void,
): TreeInspection {
  const problems: string[] = []
  const witnessed = new Map<string, WitnessSummary>()
  let count = 0
  let [fitting, kept] = [0, 0]

  /** Runs a step; an unreadable part of the pack is a problem of it. */
  async function tried<Value>(step: () => Promise<Value>): Promise<Value | null> {
    try {
      return await step()
    } catch (error) {
      if (!(error instanceof MalformedNote)) throw error
      problems.push(error.message)
      return null
    }
  }

  /** The tile of the leaves that are compared now, and its number. */
  let [hashes, n]: [Buffer | null, number] = [null, -1]

  function compare(hash: Buffer): void {
    const index = pack.first + count - 1
    const at = (index % TILE_WIDTH) * HASH_BYTES
    if (hashes && hashes.length < at + HASH_BYTES) problems.push(`leaf ${index} is not in the tiles`)
    else if (hashes && hash.compare(hashes, at, at + HASH_BYTES) !== 0)
      problems.push(`leaf ${index} is another one in the tiles`)
  }

  async function compareFirst(hash: Buffer): Promise<void> {
    const width = ((pack.first + count - 1) % TILE_WIDTH) + 1
    hashes = await tried(() => pack.tile({ level: 0, n }, width))
    compare(hash)
  }

  async function check(checkpoint: SignedCheckpoint): Promise<void> {
    const { size, origin, root } = checkpoint
    if (origin !== pack.origin) problems.push(`the checkpoint of ${size} rows is of another log: ${origin}`)
    if (size > 0 && (await rootAt(pack, size)).equals(root)) fitting += 1
    else problems.push(`the checkpoint of ${size} rows has another root than the tiles`)
    for (const one of witnessesOf(checkpoint, trusted.witnesses)) witnessed.set(one.name, one)
    problems.push(...((await trusted.stamps?.check(checkpoint, checkpoint.stamps ?? [])) ?? []))
  }

  /** Returns whether a checkpoint that was kept elsewhere could be compared. */
  async function checkKept(checkpoint: SignedCheckpoint): Promise<boolean> {
    const { size } = checkpoint
    const reachable =
      size === 0 ||
      (await rootAt(pack, size).then(
        () => true,
        (error) => {
          if (error instanceof MalformedNote) return false
          throw error
        },
      ))
    if (!reachable && checkpoint === trusted.since)
      problems.push(`the pack has no tiles to show that it goes on from the checkpoint of ${size} rows`)
    else if (!reachable)
      note(`not compared: the kept checkpoint of ${size} rows, of which the pack has no tiles`)
    else if (size > 0) await check(checkpoint)
    if (reachable) kept = Math.max(kept, size)
    return reachable && size > 0
  }

  /**
   * Compares the parts of the pack; returns the size that is covered, and whether something from elsewhere
   * vouches for it.
   */
  async function compareAll(): Promise<{ readonly sealed: number; readonly vouched: boolean }> {
    const stored = await pack.checkpoints()
    const own = [...(await pack.keys()), ...trusted.keys]
    const newest = stored.at(-1)
    if (!newest || newest.size < pack.first + pack.rows)
      throw new MalformedNote('no checkpoint covers the rows')
    problems.push(...sinceFaults(trusted, own))
    await bind(pack, newest.size)
    for (const checkpoint of stored) {
      if (!isSignedBy(checkpoint.note, own))
        problems.push(`the checkpoint of ${checkpoint.size} rows is not signed by its log`)
      await check(checkpoint)
    }
    if (trusted.keys.length > 0 && !isSignedBy(newest.note, trusted.keys))
      problems.push('the newest checkpoint is not signed by the key that was given')
    let vouched = trusted.keys.length > 0
    for (const checkpoint of trusted.checkpoints.filter(({ size }) => size <= newest.size))
      vouched = (await checkKept(checkpoint)) || vouched
    return { sealed: newest.size, vouched }
  }

  async function verdict(): Promise<TreeVerdict> {
    if (count < pack.rows)
      return found(0, false, NO_STAMPS, `there are ${count} rows, but the pack says ${pack.rows}`)
    if (count > pack.rows) problems.push(`there are ${count} rows, but the pack says ${pack.rows}`)
    const { sealed, vouched } = (await tried(compareAll)) ?? { sealed: 0, vouched: false }
    for (const { name } of trusted.witnesses) {
      if (!witnessed.has(name)) problems.push(`no checkpoint is cosigned by the witness ${name}`)
    }
    const { problems: unstamped, ...stamps } = trusted.stamps?.end() ?? NO_STAMPS
    problems.push(...unstamped)
    const beyond = sealed > 0 ? trusted.checkpoints.find(({ size }) => size > sealed) : undefined
    const cut = beyond && `the pack ends at ${sealed} rows, but a checkpoint of ${beyond.size} rows was kept`
    return found(sealed, vouched && problems.length === 0, stamps, cut ?? null)
  }

  const found = (
    sealed: number,
    vouched: boolean,
    { stamped, unchecked }: TreeVerdict['stamps'],
    cutShort: string | null,
  ): TreeVerdict => ({
    origin: pack.origin,
    checkpoints: fitting,
    tiles: Math.ceil((pack.first + pack.rows) / TILE_WIDTH) - Math.floor(pack.first / TILE_WIDTH),
    sealed,
    behind: 0,
    problems,
    cutShort,
    vouched,
    kept: vouched ? kept : 0,
    witnessed: [...witnessed.values()],
    stamps: { stamped, unchecked },
  })

  return {
    add: (hash) => {
      count += 1
      if (problems.length > 0 || count > pack.rows) return undefined
      const of = Math.floor((pack.first + count - 1) / TILE_WIDTH)
      if (of !== n) {
        n = of
        return compareFirst(hash)
      }
      compare(hash)
      return undefined
    },
    verdict,
  }
}

/**
 * Throws `MalformedNote` if a tile of the rows does not lead to the tiles above it, up to the edge of a size.
 */
async function bind(pack: EvidencePack, size: number): Promise<void> {
  let [first, last] = [pack.first, pack.first + pack.rows - 1]
  for (let [level, count] = [0, size]; count > 0; level += 1, count = Math.floor(count / TILE_WIDTH)) {
    ;[first, last] = [Math.floor(first / TILE_WIDTH), Math.floor(last / TILE_WIDTH)]
    for (let n = first; n <= last; n += 1) {
      const width = Math.min(TILE_WIDTH, count - n * TILE_WIDTH)
      const tile = await pack.tile({ level, n }, Math.max(width, 0))
      if (width === TILE_WIDTH) await leadsUp(pack, level, n, tile)
    }
  }
}

async function leadsUp(pack: EvidencePack, level: number, n: number, tile: Buffer): Promise<void> {
  const at = n % TILE_WIDTH
  const above = await pack.tile({ level: level + 1, n: Math.floor(n / TILE_WIDTH) }, at + 1)
  if (!perfectRoot(tile).equals(above.subarray(at * HASH_BYTES, (at + 1) * HASH_BYTES)))
    throw new MalformedNote(`tile ${level}/${n} does not lead to the tile above it`)
}
