import { hash } from 'node:crypto'
import { type Entry, LedgerError, type Unit } from '../../db/audit/entry.ts'
import type { Ledger } from '../../db/audit/ledger.ts'
import type { Database } from '../../db/database.ts'
import type { JsonObject } from '../../db/json.ts'
import { authorityUnchanged } from '../../db/principals/pins.ts'
import { claimOnce } from '../../db/single-uses.ts'
import type { Assertion, Statement } from '../../db/statement.ts'
import { isReplay } from '../dpop/single-use.ts'
import type { CallSummary, Demand, Principal, Proof } from '../facts.ts'
import {
  type Arrival,
  type Receipt,
  type Recorder,
  type Settlement,
  Stale,
  type Summarised,
} from '../plugin.ts'
import { Refusal, type RefusalReason } from '../refusal.ts'
import type { AnonymousRefusals } from './anonymous.ts'
import type { RefusalSummaries } from './summaries.ts'

/** The facts that a decision row is made of. */
export interface Recorded {
  readonly principal: Principal
  /** The same principal as the gate judged it, where the call came so far. */
  readonly holder?: Principal
  readonly proof: Proof | null
  readonly demand: Demand
  readonly call: CallSummary
  readonly body: Buffer
  /** Of a body that is too long to be digested at once. */
  readonly bodySha256?: string
}

/** The means to write rows: the ledger, and the digest of the configuration that judged. */
export interface AuditSources {
  readonly ledger: Pick<Ledger, 'commit' | 'failing'>
  readonly outcomes: Pick<Outcomes, 'settle'>
  readonly database: Database
  readonly configDigest: string
  /** Counts refusals before any principal was known; a task writes one row per reason and minute. */
  readonly anonymous: Pick<AnonymousRefusals, 'count'>
  /** Counts refusals of a known principal that are too many to be rows; a task writes their summaries. */
  readonly summaries: Pick<RefusalSummaries, 'takeRow' | 'count'>
  /** Principals whose calls were served, by id; a task writes down when they were last seen. */
  readonly seen: Map<string, Principal>
}

export interface CallRecorder extends Recorder<Arrival & Recorded> {
  /** `standing`: the conditions that the call was judged by, beside its principal's authority. */
  readonly allowed: (facts: Arrival & Recorded, standing?: readonly Assertion[]) => Promise<Receipt | null>
}

/**
 * Records decisions on known principals as rows, durable before it resolves (docs/ledger.md).
 * Rejects where the ledger cannot: then nothing may be dispatched. The call's DPoP proof is claimed in the
 * same unit, granted or not; a replay is denied with `proof_invalid`. The row of an allowed call is written
 * only while its principal's authority is the one that was judged, from the first plugin on; else it rejects
 * with {@link Stale}. The outcome row of an allowed call is handed in when it has ended, and waits for nobody.
 *
 * Nobody can grow the chain by being refused: of a principal's refusals of one kind only so many in a minute
 * are rows of their own, the others are counted for one row, their proofs claimed all the same; those before
 * the principal is known are only counted.
 */
export function audit({
  ledger,
  outcomes,
  database,
  configDigest,
  anonymous,
  summaries,
  seen,
}: AuditSources): CallRecorder {
  const unchanged = authorityUnchanged(database)
  // In one unit with the row: the proof is claimed and the decision recorded, or neither. Whatever the
  // decision was, a proof has been seen once: what is refused now must not pass when it comes again after a
  // grant.
  const claim = ({ proof }: Known): readonly Statement[] =>
    proof ? [claimOnce(database, proof.replayKey, proof.expiresAt)] : []
  const commit = async (facts: Identified, unit: Unit): Promise<Receipt | null> => {
    try {
      return receiptOf(await ledger.commit(unit))
    } catch (error) {
      if (isStale(error)) throw new Stale(undefined, { cause: error })
      if (!isReplay(error) || unit.statements?.length === 0) throw error
      const recorded = await deny(facts, REPLAY, [])
      throw new Refusal('proof_invalid', { cause: error, recorded })
    }
  }
  // `statements`: none where the proof has been found to be used already.
  const deny = async (
    facts: Identified,
    why: Why,
    statements = claim(facts),
  ): Promise<Receipt | Summarised | null> => {
    const kind = { principal: facts.principal, action: facts.demand.action, reason: why.reason }
    if (summaries.takeRow(kind)) {
      return commit(facts, { statements, entries: [denied(facts, why, configDigest)] })
    }
    if (statements.length > 0) await commit(facts, { statements, entries: [] })
    // Nothing is counted that may never be written: no call is answered without a record.
    else if (ledger.failing) throw new LedgerError('unavailable', 'the audit ledger cannot be written')
    return summaries.count({ ...kind, ...repeated(facts, why), configDigest })
  }
  return {
    allowed: (facts, standing = []) => {
      const { type, id, revision } = facts.principal
      const assertions = [unchanged(type, id, revision), ...standing]
      const entries = [decision(facts, 'allowed', {}, configDigest)]
      return commit(facts, { assertions, statements: claim(facts), entries })
    },
    refused: async (facts, refusal, by) => {
      if (isIdentified(facts)) return deny(facts, { reason: refusal.reason, by, more: required(refusal) })
      anonymous.count(refusal.reason)
      return null
    },
    settled: (facts, settlement) => {
      seen.set(facts.principal.id, facts.principal)
      outcomes.settle(outcomeEntry(facts, settlement, configDigest))
    },
  }
}

const isStale = (error: unknown): boolean => error instanceof LedgerError && error.code === 'stale'

/** Makes the second row of an allowed call: the same request id, and what came of it. */
function outcomeEntry(
  facts: Arrival & Recorded,
  { at, status, provider, detail }: Settlement,
  configDigest: string,
): Entry {
  return { ...identity(facts, configDigest), at, status, provider, detail }
}

type Known = Arrival & Partial<Recorded>
type Identified = Known & Pick<Recorded, 'principal' | 'demand'>

const isIdentified = (facts: Known): facts is Identified =>
  facts.principal !== undefined && facts.demand !== undefined

/** The reason of a refusal, the plugin that refused, and what else its row says. */
interface Why {
  readonly reason: RefusalReason
  readonly by: string
  readonly more: { readonly required_capability?: string }
}

const REPLAY: Why = { reason: 'proof_invalid', by: 'dpop', more: {} }

const denied = (facts: Known, { reason, by, more }: Why, configDigest: string): Entry =>
  decision(facts, 'denied', { reason, refused_by: by, ...more }, configDigest)

const repeated = (facts: Known, { by, more }: Why) => ({
  requestId: facts.id,
  at: facts.at,
  bodySha256: facts.body ? sha256Of(facts.body, facts) : null,
  refusedBy: by,
  requiredCapability: more.required_capability ?? null,
})

function decision(facts: Known, status: 'allowed' | 'denied', why: JsonObject, configDigest: string): Entry {
  return {
    ...identity(facts, configDigest),
    at: facts.at,
    status,
    provider: null,
    detail: { method: facts.method, path: facts.path, ...content(facts), ...grace(facts), ...why },
  }
}

function identity(facts: Known, configDigest: string): Omit<Entry, 'at' | 'status' | 'provider' | 'detail'> {
  return {
    request_id: facts.id,
    principal_id: facts.principal?.id ?? null,
    principal_type: facts.principal?.type ?? null,
    action: facts.demand?.action ?? 'unknown',
    tool: facts.call?.tool ?? null,
    model: facts.call?.model ?? null,
    cert_thumbprint: facts.peer?.thumbprint ?? null,
    dpop_jkt: facts.proof?.jkt ?? null,
    config_digest: configDigest,
  }
}

// Digests and sizes, never the content itself (docs/ledger.md).
function content(facts: Known): JsonObject {
  const { body, call } = facts
  if (!body) return {}
  const digest = { body_sha256: sha256Of(body, facts), body_bytes: body.length }
  return call ? { ...digest, stream: call.stream, ...call.detail } : digest
}

/** A long body was digested in slices, when it was read. */
const sha256Of = (body: Buffer, { bodySha256 }: Known): string => bodySha256 ?? hash('sha256', body)

const grace = ({ principal, holder = principal }: Known): JsonObject =>
  holder?.inGrace ? { certificate: 'previous' } : {}

function required({ detail }: Refusal): Why['more'] {
  const { required_capability: capability } = detail
  return typeof capability === 'string' ? { required_capability: capability } : {}
}

const receiptOf = ([sealed]: readonly Receipt[]): Receipt | null => sealed ?? null

/**
 * The outcome rows that may wait for a ledger that is failing. Past it they are lost to this run; boot
 * recovery adds `unknown`.
 */
const MAX_OWED = 100_000

const UNSTORABLE: Entry['detail'] = { reason: 'detail_unstorable' }

/**
 * Writes outcome rows, and keeps those that the ledger would not take: exactly one outcome per allowed call,
 * whoever hangs up and whatever the disk does (docs/ledger.md). A crash leaves decisions without outcome; the
 * next boot completes them.
 */
export class Outcomes {
  readonly #ledger: Ledger
  readonly #onLost: (error: unknown) => void
  #owed: Entry[] = []
  readonly #underWay = new Set<Promise<void>>()

  constructor(ledger: Ledger, onLost: (error: unknown) => void) {
    this.#ledger = ledger
    this.#onLost = onLost
  }

  /** Writes a row. Does not wait: nobody's answer depends on it. */
  settle(entry: Entry): void {
    const written = this.#write(entry).finally(() => this.#underWay.delete(written))
    this.#underWay.add(written)
  }

  get owed(): number {
    return this.#owed.length
  }

  /** Tries the kept rows again. Called by a task, and once more while stopping. */
  async retry(): Promise<void> {
    const waiting = this.#owed
    this.#owed = []
    await Promise.all(waiting.map((entry) => this.#write(entry)))
  }

  /** Resolves when every row handed in so far was written or kept. They wait for nobody any more. */
  async flushed(): Promise<void> {
    while (this.#underWay.size > 0) {
      // Nothing to write, but it cannot wait, and all who stand in front of it go too. What the ledger says,
      // each row hears.
      await Promise.allSettled([this.#ledger.commit({ entries: [] }), ...this.#underWay])
    }
  }

  async #write(entry: Entry): Promise<void> {
    try {
      await this.#ledger.commit({ entries: [entry], lazy: true })
    } catch (error) {
      // What an upstream reported may be more than a row can hold. The row counts more than the report.
      const unstorable = !(error instanceof LedgerError)
      if (unstorable && entry.detail !== UNSTORABLE) return this.#write({ ...entry, detail: UNSTORABLE })
      if (!unstorable && this.#owed.length < MAX_OWED) this.#owed.push(entry)
      else this.#onLost(error)
    }
  }
}
