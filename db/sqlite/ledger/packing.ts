import type { MeterRefill, MeterReservation, MeterSettlement } from '../../ledger/meters/meter-book.ts'
import type { RowDraft } from '../../ledger/record/draft.ts'
import type { SealedRow } from '../../ledger/record/entry.ts'
import { MAIN_STREAM } from '../../ledger/record/leaf.ts'
import type { LedgerWork, OpenDecision, WorkResult } from '../../ledger/record/writer.ts'
import type { LedgerStatement, RowAssertion } from '../../support/statement.ts'
import type { AuditSchema } from './form/schema.ts'

export interface WriterOptions {
  readonly file: string
  readonly schema: AuditSchema
}

/** A message to the writer's thread. Answered in the order of asking; `close` by the thread's end. */
export type ToWriter =
  | { readonly kind: 'write'; readonly batch: PackedBatch }
  /** The next values of the batch that is written next. */
  | { readonly kind: 'part'; readonly values: readonly unknown[] }
  | { readonly kind: 'open-decisions' }
  | { readonly kind: 'close' }

/** `refused`: it could not start. `failed`: the next request may go through. `poisoned`: none will. */
export type FromWriter =
  | { readonly kind: 'ready'; readonly head: SealedRow | null }
  | { readonly kind: 'refused' | 'failed' | 'poisoned'; readonly message: string }
  | { readonly kind: 'written'; readonly results: PackedResults }
  | { readonly kind: 'open-decisions'; readonly decisions: readonly OpenDecision[] }

// Between threads every object is copied member by member: a batch crosses as one list of plain values.

export interface PackedBatch {
  /** The number of units. */
  readonly units: number
  /** The texts of all assertions and statements, each once. */
  readonly sql: readonly string[]
  /** Unit by unit: its number of assertions, statements, reservations, settlements and drafts; then these. */
  readonly values: readonly unknown[]
}

export interface PackedResults {
  /** `seq` of the first row that was stored; the others follow it without a gap. */
  readonly first: number
  /** Their hashes, one after the other. */
  readonly hashes: string
  /** The amounts that the reservations of a unit found used. Units are places in the batch. */
  readonly used: readonly (readonly [unit: number, used: readonly number[]])[]
  /** Units are places in the batch. */
  readonly refused: readonly (readonly [unit: number, result: RefusedUnitResult])[]
}

type RefusedUnitResult = Exclude<WorkResult, { readonly sealed: unknown }>

const HASH_LENGTH = 64

export function packBatch(batch: readonly LedgerWork[]): PackedBatch {
  const places = new Map<string, number>()
  const values: unknown[] = []
  const pack = ({ sql, parameters }: RowAssertion | LedgerStatement): void => {
    const place = places.get(sql) ?? places.size
    if (place === places.size) places.set(sql, place)
    values.push(place, parameters.length)
    for (const parameter of parameters) values.push(parameter)
  }
  for (const { assertions, statements, reservations, settlements, drafts } of batch) {
    values.push(assertions.length, statements.length, reservations.length, settlements.length, drafts.length)
    for (const assertion of assertions) pack(assertion)
    for (const statement of statements) {
      values.push(statement.changes)
      pack(statement)
    }
    for (const wish of reservations) packReservation(values, wish)
    for (const ended of settlements) packSettlement(values, ended)
    for (const draft of drafts) packDraft(values, draft)
  }
  return { units: batch.length, sql: [...places.keys()], values }
}

export function unpackBatch({ units, sql, values }: PackedBatch): readonly LedgerWork[] {
  let at = 0
  // Proven by packBatch, which alone writes the values, in the order in which they are read here.
  const next = <Value>(): Value => values[at++] as Value
  const asked = <Parameter>() => ({
    sql: sql[next<number>()] ?? '',
    parameters: list(next(), next<Parameter>),
  })
  const statement = (): LedgerStatement => {
    const changes = next<number | undefined>()
    return changes === undefined ? asked() : { ...asked(), changes }
  }
  const batch = list(units, () => {
    const [assertions, statements, reservations] = [next<number>(), next<number>(), next<number>()]
    const [settlements, drafts] = [next<number>(), next<number>()]
    return {
      assertions: list(assertions, asked<string | number>),
      statements: list(statements, statement),
      reservations: list(reservations, () => unpackReservation(next)),
      settlements: list(settlements, () => unpackSettlement(next)),
      drafts: list(drafts, () => unpackDraft(next)),
    }
  })
  if (at !== values.length) throw new Error(`a batch of ${at} values came with ${values.length}`)
  return batch
}

function list<Item>(length: number, read: () => Item): readonly Item[] {
  const items: Item[] = []
  while (items.length < length) items.push(read())
  return items
}

function packReservation(
  values: unknown[],
  { limit, who, span, took, most, refuses, refill }: MeterReservation,
): void {
  values.push(limit, who, span, took, most, refuses)
  packRefill(values, refill)
}

// The order of packReservation.
const unpackReservation = (next: <Value>() => Value): MeterReservation => ({
  ...{ limit: next<string>(), who: next<string>(), span: next<string>(), took: next<number>() },
  ...{ most: next<number>(), refuses: next<boolean>(), ...unpackRefill(next) },
})

function packSettlement(
  values: unknown[],
  { limit, who, span, took, charged, refill }: MeterSettlement,
): void {
  values.push(limit, who, span, took, charged)
  packRefill(values, refill)
}

// The order of packSettlement.
const unpackSettlement = (next: <Value>() => Value): MeterSettlement => ({
  ...{ limit: next<string>(), who: next<string>(), span: next<string>(), took: next<number>() },
  ...{ charged: next<number>(), ...unpackRefill(next) },
})

function packRefill(values: unknown[], refill: MeterRefill | undefined): void {
  if (refill) values.push(true, refill.rate, refill.periodMs, refill.at)
  else values.push(false)
}

function unpackRefill(next: <Value>() => Value): { readonly refill?: MeterRefill } {
  if (!next<boolean>()) return {}
  return { refill: { rate: next(), periodMs: next(), at: next() } }
}

function packDraft(values: unknown[], draft: RowDraft): void {
  const { recorded_at, request_id, principal_id, principal_type, action, status, tool, model } = draft
  const { provider, cert_thumbprint, dpop_jkt, config_digest, version } = draft
  values.push(recorded_at, request_id, principal_id, principal_type, action, status, tool, model)
  values.push(provider, cert_thumbprint, dpop_jkt, config_digest, version)
  values.push(draft.beforePrev, draft.beforeSeq, draft.afterSeq)
}

// The order of packDraft.
const unpackDraft = (next: <Value>() => Value): RowDraft => ({
  recorded_at: next(),
  request_id: next(),
  principal_id: next(),
  principal_type: next(),
  action: next(),
  status: next(),
  tool: next(),
  model: next(),
  provider: next(),
  cert_thumbprint: next(),
  dpop_jkt: next(),
  config_digest: next(),
  version: next(),
  beforePrev: next(),
  beforeSeq: next(),
  afterSeq: next(),
})

export function packResults(results: readonly WorkResult[]): PackedResults {
  const sealed = results.flatMap((result) => ('sealed' in result ? result.sealed : []))
  return {
    first: sealed[0]?.seq ?? 0,
    hashes: sealed.map(({ hash }) => hash).join(''),
    used: results.flatMap((result, unit) =>
      'sealed' in result && result.sealed[0]?.used ? [[unit, result.sealed[0].used] as const] : [],
    ),
    refused: results.flatMap((result, unit) => ('sealed' in result ? [] : [[unit, result] as const])),
  }
}

/** Reads the results of a batch. `batch`: the one that was packed, for its units. */
export function unpackResults(
  { first, hashes, used: packed, refused }: PackedResults,
  batch: readonly LedgerWork[],
): readonly WorkResult[] {
  const denied = new Map(refused)
  const usages = new Map(packed)
  let row = 0
  const sealNext = () => {
    const hash = hashes.slice(row * HASH_LENGTH, (row + 1) * HASH_LENGTH)
    const seq = first + row
    row += 1
    return { stream: MAIN_STREAM, seq, hash }
  }
  const results = batch.map((work, unit): WorkResult => {
    const refusal = denied.get(unit)
    if (refusal) return refusal
    const sealed = work.drafts.map(sealNext)
    const used = usages.get(unit)
    return { sealed: used ? sealed.map((row) => ({ ...row, used })) : sealed }
  })
  if (row * HASH_LENGTH !== hashes.length)
    throw new Error(`the audit writer answered with ${hashes.length} characters of hashes for ${row} rows`)
  return results
}
