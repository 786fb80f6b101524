import { MalformedNote, type VerifierKey } from './note.ts'
import { type CheckpointSeals, sealsAhead, sealsOf } from './seals.ts'
import {
  type LogTrust,
  NO_STAMPS,
  type SignedCheckpoint,
  type StampTally,
  sinceFaults,
  type WitnessSummary,
} from './trusted.ts'
import { type StoredTreeParts, type TreeWalk, type TreeWalkResult, treeWalk } from './walk.ts'

export interface StoredLog {
  readonly origin: string
  /** The keys that the log says are its own: no proof to a reader who has them from nowhere else. */
  readonly keys: readonly VerifierKey[]
  /** Sorted by size. May be long. */
  readonly checkpoints: AsyncIterable<SignedCheckpoint> | Iterable<SignedCheckpoint>
  readonly tiles?: StoredTreeParts['tiles']
  readonly start?: StoredTreeParts['start']
  readonly standing: StoredStanding
}

/** The tree as its own table has it, next to its newest checkpoint, read at one instant. */
export interface StoredStanding {
  readonly size: number
  readonly place: number
  /** Null: there is no checkpoint. */
  readonly newest_size: number | null
  readonly newest_place: number | null
  /** The rows up to `place`. */
  readonly rows: number
}

export interface TreeVerdict {
  readonly origin: string | null
  /** The checkpoints whose root is that of the rows before them. */
  readonly checkpoints: number
  /** The stored tiles that are those of the rows. */
  readonly tiles: number
  /** The rows under the largest checkpoint, and those after it. */
  readonly sealed: number
  readonly behind: number
  /** Faults, each as a sentence. */
  readonly problems: readonly string[]
  /** Why rows are missing at the end; null if that is not known. */
  readonly cutShort: string | null
  /** True if a key or a checkpoint from elsewhere vouches for the sealed rows. */
  readonly vouched: boolean
  /** The rows under the largest checkpoint that was kept elsewhere; 0 if none was. */
  readonly kept: number
  readonly witnessed: readonly WitnessSummary[]
  readonly stamps: Omit<StampTally, 'problems'>
}

export interface TreeInspection {
  readonly add: TreeWalk['add']
  readonly verdict: () => Promise<TreeVerdict>
}

const MAX_TREE_PROBLEMS = 20

/** `stored`: null if there are rows alone, as in an export. */
export function inspectTree(stored: StoredLog | null, trusted: LogTrust): TreeInspection {
  const problems: string[] = []
  // The rows under the others are archived: nothing here can be compared with them.
  const comparable = trusted.checkpoints.filter(({ size }) => size >= (stored?.start?.size ?? 0))
  const fault = (sentence: string): void => {
    if (problems.length < MAX_TREE_PROBLEMS && !problems.includes(sentence)) problems.push(sentence)
  }
  /** Rows of the largest checkpoint met, and of the largest that a trusted key has signed. */
  const odd = stored && standingFault(stored.standing)
  if (odd !== null) fault(odd)
  for (const sentence of sinceFaults(trusted, stored?.keys ?? [])) fault(sentence)
  let [largest, signed] = [-1, 0]
  /** True if a trusted key signed the last stored one: rows cut off may be sealed by another. */
  let isOwnSigned = true
  const witnessed = new Map<string, WitnessSummary>()
  const origin = stored?.origin ?? trusted.keys[0]?.name ?? trusted.checkpoints[0]?.origin ?? null

  function look({ checkpoint, isByLog, isByTrusted, witnesses }: CheckpointSeals, whose: string): void {
    const { size } = checkpoint
    largest = Math.max(largest, size)
    if (checkpoint.origin !== origin)
      fault(`${whose} checkpoint of ${size} rows is of another log: ${checkpoint.origin}`)
    if (!isByLog) fault(`${whose} checkpoint of ${size} rows is not signed by its log`)
    if (isByTrusted) signed = Math.max(signed, size)
    for (const one of witnesses) witnessed.set(one.name, one)
  }

  async function lookAtStamps(checkpoint: SignedCheckpoint): Promise<void> {
    const { stamps = [] } = checkpoint
    const found = trusted.stamps && (await trusted.stamps.check(checkpoint, stamps))
    for (const sentence of found ?? []) fault(sentence)
  }

  async function* claimed() {
    try {
      yield* merged()
    } catch (error) {
      if (!(error instanceof MalformedNote)) throw error
      fault(`a stored checkpoint cannot be read: ${error.message}`)
    }
  }

  async function* merged() {
    const kept = comparable.toSorted((one, other) => one.size - other.size)
    const meet = async (seals: CheckpointSeals, isKept: boolean) => {
      const { checkpoint } = seals
      await lookAtStamps(checkpoint)
      look(seals, isKept ? 'the kept' : 'the')
      if (!isKept) isOwnSigned = seals.isByTrusted
      return { size: checkpoint.size, root: checkpoint.root.toString('base64') }
    }
    // It came from elsewhere: the signature of a former key of the log, which nobody gave, is as good.
    const meetKept = async (checkpoint: SignedCheckpoint) =>
      meet(await sealsOf(checkpoint, trusted, null), true)
    for await (const seals of sealsAhead(stored?.checkpoints ?? [], trusted, stored?.keys ?? [])) {
      while (kept[0] && kept[0].size <= seals.checkpoint.size)
        yield await meetKept(kept.shift() as SignedCheckpoint)
      yield await meet(seals, false)
    }
    for (const checkpoint of kept) yield await meetKept(checkpoint)
  }

  const { tiles, start } = stored ?? {}
  const claims = claimed()
  const walk = treeWalk({ checkpoints: claims, ...(tiles && { tiles }), start })

  /** Looks at the checkpoints of more rows than there are, too. */
  async function walked(): Promise<TreeWalkResult> {
    const found = await walk.end()
    let { done } = await claims.next()
    while (!done) done = (await claims.next()).done
    return found
  }

  function conclude({ rows, newest, problem, beyond, ...counted }: TreeWalkResult): TreeVerdict {
    if (problem !== null) fault(problem)
    const sealed = newest?.size ?? 0
    if (trusted.keys.length > 0 && (signed < largest || !isOwnSigned)) fault(NOT_BY_THE_KEY)
    if (trusted.keys.length > 0 && largest < 0) fault(NO_CHECKPOINT)
    const missing = trusted.witnesses.filter(({ name }) => !witnessed.has(name))
    for (const { name } of missing) fault(`no checkpoint is cosigned by the witness ${name}`)
    const { problems: unstamped, ...stamps } = trusted.stamps?.end() ?? NO_STAMPS
    for (const sentence of unstamped) fault(sentence)
    const vouched = problems.length === 0 && beyond === null && (signed > 0 || comparable.length > 0)
    return {
      origin,
      ...counted,
      sealed,
      behind: rows - sealed,
      problems,
      cutShort:
        beyond === null ? null : `there are ${rows} rows, but a checkpoint of ${beyond.size} rows was signed`,
      vouched,
      kept: vouched ? Math.max(0, ...comparable.map(({ size }) => size)) : 0,
      witnessed: [...witnessed.values()],
      stamps,
    }
  }
  return { add: (hash) => walk.add(hash), verdict: async () => conclude(await walked()) }
}

/** A tree that does not stand where its newest checkpoint was signed is sealed no more. */
function standingFault({ newest_size: of, newest_place: at, ...tree }: StoredStanding): string | null {
  // Fewer rows are rows cut off, which is said as that.
  if (tree.size === (of ?? 0) && tree.place === (at ?? 0) && tree.rows <= tree.size) return null
  return `the tree says ${tree.size} rows, its newest checkpoint ${of ?? 0}, and ${tree.rows} rows are up to its place: nothing more is sealed`
}

const NOT_BY_THE_KEY = 'the newest checkpoint is not signed by the key that was given'
const NO_CHECKPOINT = 'there is no checkpoint that the key could have signed'
