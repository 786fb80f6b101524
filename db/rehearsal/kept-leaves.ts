import type { WalkedPart, WalkScope } from '../ledger/rehearsal/rehearse.ts'

const MAX_CACHED_WALKS = 2
/** The leaves of a walk that is kept. Characters. */
const MAX_CACHED_CHARACTERS = 32 * 1024 * 1024

interface CachedWalk {
  /** The beginning of the window. */
  readonly since: string
  /** The place up to which all was read. */
  readonly last: number
  readonly leaves: readonly string[]
  /** Characters of all of them. */
  readonly size: number
}

type WalkReader = (wanted: WalkScope, after: number) => Generator<WalkedPart, number>

/** After every instant. */
const NO_END = '~'

/**
 * Keeps the rows read of a few principals, so that the next preview reads only later ones. For rows that
 * never change and come by place. The caller checks the leaves' times.
 */
export function leafCache(most = MAX_CACHED_CHARACTERS) {
  const walks = new Map<string, CachedWalk>()

  function keep(key: string, kept: CachedWalk): void {
    walks.delete(key)
    const [oldest] = walks.keys()
    if (walks.size === MAX_CACHED_WALKS && oldest !== undefined) walks.delete(oldest)
    if (kept.size <= most) walks.set(key, kept)
  }

  return function* (file: string, wanted: WalkScope, read: WalkReader): Generator<WalkedPart> {
    if (wanted.principals === null) return void (yield* read(wanted, 0))
    const key = JSON.stringify([file, wanted.principals, wanted.callsAlone ?? false])
    const found = walks.get(key)
    const { since, last, leaves, size } =
      found && found.since <= wanted.since ? found : { since: wanted.since, last: 0, leaves: [], size: 0 }
    yield { leaves, rows: 0, of: 0 }
    const grown = { leaves: [...leaves], size }
    const walk = read({ ...wanted, since, until: NO_END }, last)
    let next = walk.next()
    for (; !next.done; next = walk.next()) {
      const part = [...next.value.leaves]
      yield { ...next.value, leaves: part }
      for (const leaf of part) grown.size += leaf.length
      // A walk too large to keep is not gathered either.
      if (grown.size <= most) grown.leaves.push(...part)
    }
    keep(key, { since, last: next.value, ...grown })
  }
}
