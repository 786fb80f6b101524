import { hash } from 'node:crypto'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../db/support/json.ts'
import { timestamp } from '../../db/support/statement.ts'
import type { Principal } from '../facts.ts'
import type { SummarisedRefusal } from '../plugin.ts'
import { type MonotonicClock, monotonicClock } from '../secrets/throttle.ts'
import { serviceEntry } from './entries.ts'

/** The refusals of one kind within a minute that are rows of their own (docs/ledger.md#summarised). */
const OWN_ROWS = 60
const MINUTE_MS = 60_000
/** The most kinds counted apart at one time: beyond it those of all principals are counted together. */
const MAX_KINDS = 10_000
/** The most authorities told apart in the refusals of one kind, in a minute. */
const MAX_AUTHORITIES = 16

/** Refusals alike in these are one kind: nothing that a caller can choose freely. */
export interface RefusalKind {
  readonly principal: Pick<Principal, 'ref' | 'type'>
  readonly action: string
  readonly reason: string
  /** The rows' own: `denied` or `invalid`. */
  readonly status: string
}

export interface RepeatedRefusal extends RefusalKind {
  readonly refusedBy: string
  readonly requiredCapability: string | null
  /** The authority that it was judged by; null if it was refused for another reason. */
  readonly authority: JsonObject | null
  readonly requestId: string
  /** ms since the epoch. */
  readonly at: number
  /** Lower-case hex, or null if the body was not read. */
  readonly bodySha256: string | null
  readonly configDigest: string
}

export interface RefusalSummary {
  readonly principal: RefusalKind['principal'] | null
  readonly action: string
  readonly reason: string
  readonly status: string
  readonly configDigest: string
  /** Null if there were too many in its minute to tell them apart. */
  readonly authority: JsonObject | null
  /** The arrival of the first one. RFC 3339. */
  readonly since: string
  /** That of the latest one. ms since the epoch. */
  until: number
  count: number
  digest: string
  /** Null if not all have the same. */
  refusedBy: string | null
  requiredCapability: string | null
}

interface RefusalWindow {
  readonly principal: RefusalKind['principal'] | null
  /** The end of its minute. ms of the monotonic clock. */
  readonly ends: number
  own: number
  /** Keyed by the text of their authority: a row names one authority. */
  readonly open: Map<string, RefusalSummary>
}

/**
 * Counts a principal's repeated refusals. Within a minute from the first refusal of a kind, a number of them
 * are rows of their own; the others make one row with their count and a digest over them. While the disk is
 * low, none has a row of its own. Minutes are those of the monotonic clock. A crash loses the counts of the
 * minute under way.
 */
export class RefusalSummaries {
  readonly #now: MonotonicClock
  readonly #low: () => boolean
  readonly #kinds = new Map<string, RefusalWindow>()
  /** Over, and not written yet. */
  #due: RefusalSummary[] = []

  /** `low`: tells whether the disk has room for allowed rows only. */
  constructor(now: MonotonicClock = monotonicClock, low: () => boolean = () => false) {
    this.#now = now
    this.#low = low
  }

  /** Returns whether the next refusal of a kind is a row of its own. Asking takes one of these rows. */
  takeRow(of: RefusalKind): boolean {
    if (this.#low()) return false
    const kind = this.#kind(of)
    if (kind.own >= OWN_ROWS) return false
    kind.own += 1
    return true
  }

  /** Counts a refusal that has no row of its own, and returns its place in the summary. */
  count(refusal: RepeatedRefusal): SummarisedRefusal {
    const kind = this.#kind(refusal)
    // A row names one configuration.
    const [any] = kind.open.values()
    if (any && any.configDigest !== refusal.configDigest) this.#end(kind)
    return addToSummary(summaryOf(kind, refusal), refusal)
  }

  /** Returns up to `most` summaries whose minute is over, the oldest first; while stopping, of `all`. */
  drainDue(most: number, all = false): readonly RefusalSummary[] {
    const at = this.#now()
    for (const [key, kind] of this.#kinds) {
      if (this.#due.length >= most || (at < kind.ends && !all)) break
      this.#kinds.delete(key)
      this.#end(kind)
    }
    return this.#due.splice(0, most)
  }

  requeue(summaries: readonly RefusalSummary[]): void {
    this.#due = [...summaries, ...this.#due]
  }

  #kind({ principal, action, reason }: RefusalKind): RefusalWindow {
    const key = `${principal.type}\n${principal.ref}\n${action}\n${reason}`
    const known = this.#kinds.get(key)
    // A minute lasts longer while the ledger takes no rows: the rows that wait for it must not grow.
    if (known && (this.#now() < known.ends || this.#due.length >= MAX_KINDS)) return known
    if (known) {
      this.#kinds.delete(key)
      this.#end(known)
    }
    if (this.#kinds.size < MAX_KINDS) return this.#begin(key, principal)
    const common = `\n${action}\n${reason}`
    return this.#kinds.get(common) ?? this.#begin(common, null)
  }

  #begin(key: string, principal: RefusalWindow['principal']): RefusalWindow {
    const own = principal ? 0 : OWN_ROWS
    const kind: RefusalWindow = { principal, ends: this.#now() + MINUTE_MS, own, open: new Map() }
    this.#kinds.set(key, kind)
    return kind
  }

  #end(kind: RefusalWindow): void {
    this.#due.push(...kind.open.values())
    kind.open.clear()
  }
}

/** The digest of a summary that stands for nothing yet. */
const NOTHING = '0'.repeat(64)

function summaryOf(kind: RefusalWindow, refusal: RepeatedRefusal): RefusalSummary {
  const told = kind.principal && refusal.authority ? JSON.stringify(refusal.authority) : ''
  const key = kind.open.has(told) || kind.open.size < MAX_AUTHORITIES ? told : ''
  const known = kind.open.get(key)
  if (known) return known
  const made = beginSummary(kind, refusal, key === '' ? null : refusal.authority)
  kind.open.set(key, made)
  return made
}

const beginSummary = (
  { principal }: RefusalWindow,
  { action, reason, status, configDigest, at, refusedBy, requiredCapability }: RepeatedRefusal,
  authority: JsonObject | null,
): RefusalSummary => ({
  principal,
  action,
  reason,
  status,
  configDigest,
  authority,
  since: timestamp(at),
  until: at,
  count: 0,
  digest: NOTHING,
  refusedBy,
  requiredCapability,
})

function addToSummary(
  summary: RefusalSummary,
  { at: arrived, requestId, bodySha256, refusedBy, requiredCapability }: RepeatedRefusal,
): SummarisedRefusal {
  const at = timestamp(arrived)
  summary.count += 1
  summary.until = Math.max(summary.until, arrived)
  // The members in RFC 8785's order; nothing in them needs an escape.
  const text = JSON.stringify({ at, body_sha256: bodySha256, request_id: requestId })
  summary.digest = hash('sha256', summary.digest + text)
  if (summary.refusedBy !== refusedBy) summary.refusedBy = null
  if (summary.requiredCapability !== requiredCapability) summary.requiredCapability = null
  const { action, since, count: n } = summary
  return { summarised: { action, since, n, at, body_sha256: bodySha256 } }
}

export function summaryEntry(summary: RefusalSummary): LedgerEntry {
  const { principal, action, reason, status, authority, refusedBy, requiredCapability, count, digest } =
    summary
  const detail = {
    reason,
    ...(refusedBy !== null && { refused_by: refusedBy }),
    ...(requiredCapability !== null && { required_capability: requiredCapability }),
    ...(authority && { authority }),
    summarised: { count, since: summary.since, until: timestamp(summary.until), digest },
  }
  return {
    ...serviceEntry(action, status, detail, summary.until, summary.configDigest),
    principal_id: principal?.ref ?? null,
    principal_type: principal?.type ?? null,
  }
}
