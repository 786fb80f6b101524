import { setTimeout as wait } from 'node:timers/promises'
import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { checkpointText } from '../../db/ledger/tree/checkpoint.ts'
import { HASH_BYTES } from '../../db/ledger/tree/hashes.ts'
import {
  currentTree,
  growTree,
  newestCheckpoint,
  readEdge,
  type StoredTree,
  tileReader,
} from '../../db/ledger/tree/store.ts'
import { extendTree, rootOf, type TreeEdge } from '../../db/ledger/tree/tiles.ts'
import type { LogKeys } from './log-keys.ts'

/** The most rows under one checkpoint: the main thread hashes them in one go. */
const PORTION = 2_048
/** The pause between two checkpoints of a long way to catch up: calls come first. ms. */
const PAUSE_MS = 20

interface SealerDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly keys: Pick<LogKeys, 'sign'>
  readonly clock: () => number
}

/** The error of a stored tree that is not the one that its newest checkpoint was signed for. */
class OddTree extends Error {}

interface GrownTree extends StoredTree {
  readonly edge: TreeEdge
}

/**
 * Seals the rows of the ledger: appends their leaves to the tree and signs the result (docs/ledger.md#tree).
 * Tiles and checkpoint are stored in one transaction, which is refused if another process has grown the tree
 * meanwhile; rows are sealed when they are durable, never before. So no crash takes a checkpoint back.
 *
 * State: the edge of the tree as this process has left it, forgotten with any failure and read again. Owned
 * by `#sealPortion`; one runs at a time.
 */
export class LedgerSealer {
  readonly #sources: SealerDependencies
  #grown: GrownTree | null = null
  #running: Promise<void> | null = null
  #stopped = false
  #isAtFault = false

  constructor(sources: SealerDependencies) {
    this.#sources = sources
  }

  /** True while the stored tree is not the one that was signed: nothing more is signed. */
  get isAtFault(): boolean {
    return this.#isAtFault
  }

  /** Seals all rows that are there. A call while one is under way joins it. Stops if `goesOn` says no. */
  seal(goesOn: () => boolean = () => true): Promise<void> {
    this.#running ??= this.#sealAll(goesOn).finally(() => {
      this.#running = null
    })
    return this.#running
  }

  /** Seals no more, and waits for the checkpoint under way. */
  async stop(): Promise<void> {
    this.#stopped = true
    await Promise.allSettled([this.#running])
    this.#stopped = false
  }

  async #sealAll(goesOn: () => boolean): Promise<void> {
    try {
      while (!this.#stopped && goesOn() && (await this.#sealPortion())) await wait(PAUSE_MS)
      this.#isAtFault = false
    } catch (error) {
      this.#grown = null
      this.#isAtFault = error instanceof OddTree
      // Another process has grown the tree: the next look finds it so.
      if (!(error instanceof LedgerError) || !['conflict', 'duplicate', 'closed'].includes(error.code))
        throw error
    }
  }

  /** Returns whether there may be more. */
  async #sealPortion(): Promise<boolean> {
    const { database, ledger, keys, clock } = this.#sources
    this.#grown ??= await this.#read()
    if (!this.#grown) return false
    const { edge, ...tree } = this.#grown
    const { hashes, place } = await database.treeRows.hashes(tree.place, PORTION)
    if (hashes.length === 0) return false
    // Another one may have begun, and with it came a row: the organisation was named.
    if ((await currentTree(database.kysely))?.tree !== tree.tree) {
      this.#grown = null
      return true
    }
    const added = hashes.length / HASH_BYTES
    const grown = extendTree(tree.size, edge, hashes)
    const to = { size: tree.size + added, place }
    const text = checkpointText({ origin: tree.origin, size: to.size, root: grown.root })
    const signatures = await keys.sign(tree, text)
    const statements = growTree(database.kysely, { from: tree, to, ...grown, signatures, at: clock() })
    await ledger.commit({ statements, entries: [], lazy: true })
    this.#grown = { ...tree, ...to, edge: grown.edge }
    return added === PORTION
  }

  /**
   * The tree as it is stored; null if there is none, or another process grows it just now. Throws if it is
   * not the one that its newest checkpoint was signed for.
   */
  async #read(): Promise<GrownTree | null> {
    const { kysely } = this.#sources.database
    const tree = await currentTree(kysely)
    if (!tree) return null
    const edge = await readEdge(tileReader(kysely, tree.tree), tree.size)
    const newest = await newestCheckpoint(kysely, tree.tree)
    // Each is read by itself: both together count if nothing has changed meanwhile.
    const after = await currentTree(kysely)
    if (after?.tree !== tree.tree || after.size !== tree.size) return null
    const root = tree.size === 0 ? undefined : rootOf(edge).toString('base64')
    const isSigned = (newest?.size ?? 0) === tree.size && (newest?.place ?? 0) === tree.place
    if (isSigned && newest?.root === root) return { ...tree, edge }
    throw new OddTree(
      `the tiles of ${tree.origin} do not make its checkpoint of ${newest?.size ?? 0} rows: nothing more is signed`,
    )
  }
}
