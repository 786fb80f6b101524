import type { LedgerReplay, ReplayedPrincipal } from '../authority/replay.ts'
import { MARKS } from '../canonical/bytes.ts'
import { LeafRow } from '../canonical/leaf-row.ts'
import type { StoredRow } from '../record/leaf.ts'

/** No text of such a row holds a control character. */
const NONE = '\u0001'

/** The words that are remembered: those of the callers of now. */
const MAX_AGREED = 8_192
/** Longer ones are judged each time: they may be a stranger's. Characters. */
const MAX_WORDS = 4_096

/**
 * The words of allowed decisions that have agreed since the last change. A decision that says all of them again rests on
 * the same rows, and agrees too: it need not be parsed and judged again. What depends on the time is never one of them,
 * nor what rests on a grant, an approval or a limit.
 */
export class AgreedDecisions {
  readonly #replay: LedgerReplay
  readonly #words = new Set<string>()

  constructor(replay: LedgerReplay) {
    this.#replay = replay
  }

  /** Returns all that a row is judged by; null of a row that must be judged. */
  wordsOf(row: StoredRow): string | null {
    if (!(row instanceof LeafRow) || row.status !== 'allowed' || row.request_id === null) return null
    if (row.v === 1 || (row.marks & (MARKS.limits | MARKS.more)) !== 0) return null
    if (!this.#replay.metered.isEmpty) return null
    const { stream, action, principal_id: id, principal_type: type, tool } = row
    const { cert_thumbprint: certificate, dpop_jkt: key, config_digest: configuration } = row
    const columns = [stream, action, id ?? NONE, type ?? NONE, tool ?? NONE, certificate ?? NONE, key ?? NONE]
    return [...columns, configuration, row.noted('path'), row.noted('authority')].join('\0')
  }

  has(words: string): boolean {
    return this.#words.has(words)
  }

  /** Takes the words of a decision that has agreed. */
  add(words: string, { principal_id: id }: StoredRow): void {
    const principal = this.#replay.principals.get(id ?? '')
    if (!principal || isTimed(principal) || words.length > MAX_WORDS) return
    if (this.#words.size >= MAX_AGREED) this.#words.clear()
    this.#words.add(words)
  }

  /** Forgets them: a row has changed something. */
  forget(): void {
    this.#words.clear()
  }
}

/** True if something of it is honoured for a time alone. */
const isTimed = ({ states, bundle }: ReplayedPrincipal): boolean => {
  const { thumbprints = [], dpopJkts = [] } = states.at(-1) ?? {}
  return (
    [...thumbprints, ...dpopJkts].some(([, until]) => until !== null) || (bundle?.previous?.length ?? 0) > 0
  )
}
