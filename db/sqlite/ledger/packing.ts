import type { Draft } from '../../audit/draft.ts'
import { MAIN_STREAM } from '../../audit/leaf.ts'
import type { Work, WorkResult } from '../../audit/writer.ts'
import type { Assertion, Statement } from '../../statement.ts'

// Between threads every object is copied member by member, a text in one piece: packed, a batch costs a
// third.

/** A batch as it crosses to the writer's thread. */
export interface PackedBatch {
  /**
   * The fields of all drafts, one after the other, each followed by U+0000, which stands in none
   * (db/audit/draft.ts).
   */
  readonly drafts: string
  /** The number of drafts of each unit. */
  readonly counts: readonly number[]
  /** The texts of all assertions, each once. */
  readonly questions: readonly string[]
  /** JSON: for each assertion the unit's place in the batch, the question's, and the parameters. */
  readonly assertions: string
  /** The statements of the units that have any, by the unit's place in the batch. */
  readonly statements: readonly (readonly [unit: number, statements: readonly Statement[]])[]
}

/** The results of a batch, as they cross back. */
export interface PackedResults {
  /** `seq` of the first row that was stored; the others follow it without a gap. */
  readonly first: number
  /** Their hashes, one after the other. */
  readonly hashes: string
  /** By the unit's place in the batch. */
  readonly refused: readonly (readonly [unit: number, result: Refused])[]
}

type Refused = Exclude<WorkResult, { readonly sealed: unknown }>

const END = '\0'
// In front of a text that might have been absent.
const PRESENT = '='
const HASH_LENGTH = 64

export function packBatch(batch: readonly Work[]): PackedBatch {
  let drafts = ''
  for (const work of batch) for (const draft of work.drafts) drafts += packDraft(draft)
  return {
    drafts,
    counts: batch.map((work) => work.drafts.length),
    ...packAssertions(batch),
    statements: batch.flatMap((work, unit) =>
      work.statements.length === 0 ? [] : [[unit, work.statements] as const],
    ),
  }
}

export function unpackBatch(packed: PackedBatch): readonly Work[] {
  const { drafts, counts, statements } = packed
  const next = fieldReader(drafts)
  const own = new Map(statements)
  const asserted = unpackAssertions(packed)
  return counts.map((count, unit) => ({
    assertions: asserted.get(unit) ?? [],
    statements: own.get(unit) ?? [],
    drafts: Array.from({ length: count }, () => unpackDraft(next)),
  }))
}

export function packResults(results: readonly WorkResult[]): PackedResults {
  const sealed = results.flatMap((result) => ('sealed' in result ? result.sealed : []))
  return {
    first: sealed[0]?.seq ?? 0,
    hashes: sealed.map(({ hash }) => hash).join(''),
    refused: results.flatMap((result, unit) => ('sealed' in result ? [] : [[unit, result] as const])),
  }
}

/** Reads the results of a batch. `batch`: the one that was packed, for its units. */
export function unpackResults(
  { first, hashes, refused }: PackedResults,
  batch: readonly Work[],
): readonly WorkResult[] {
  const denied = new Map(refused)
  let row = 0
  const sealNext = () => {
    const hash = hashes.slice(row * HASH_LENGTH, (row + 1) * HASH_LENGTH)
    const seq = first + row
    row += 1
    return { stream: MAIN_STREAM, seq, hash }
  }
  const results = batch.map((work, unit) => denied.get(unit) ?? { sealed: work.drafts.map(sealNext) })
  if (row * HASH_LENGTH !== hashes.length)
    throw new Error(`the audit writer answered with ${hashes.length} characters of hashes for ${row} rows`)
  return results
}

type PackedAssertion = readonly [unit: number, question: number, ...parameters: Assertion['parameters']]

function packAssertions(batch: readonly Work[]): Pick<PackedBatch, 'questions' | 'assertions'> {
  const questions = new Map<string, number>()
  const packed: PackedAssertion[] = []
  for (const [unit, { assertions }] of batch.entries()) {
    for (const { sql, parameters } of assertions) {
      const question = questions.get(sql) ?? questions.size
      questions.set(sql, question)
      packed.push([unit, question, ...parameters])
    }
  }
  return { questions: [...questions.keys()], assertions: JSON.stringify(packed) }
}

function unpackAssertions({ questions, assertions }: PackedBatch): ReadonlyMap<number, readonly Assertion[]> {
  const found = new Map<number, Assertion[]>()
  // Proven by packAssertions, which alone writes the text.
  for (const [unit, question, ...parameters] of JSON.parse(assertions) as readonly PackedAssertion[]) {
    const own = found.get(unit) ?? []
    found.set(unit, own)
    own.push({ sql: questions[question] ?? '', parameters })
  }
  return found
}

function packDraft(draft: Draft): string {
  const { recorded_at, action, status, beforePrev, beforeSeq, afterSeq } = draft
  const [request, principal] = [optional(draft.request_id), optional(draft.principal_id)]
  return [recorded_at, request, principal, action, status, beforePrev, beforeSeq, afterSeq, ''].join(END)
}

// In the order of packDraft.
const unpackDraft = (next: () => string): Draft => ({
  recorded_at: next(),
  request_id: orNull(next()),
  principal_id: orNull(next()),
  action: next(),
  status: next(),
  beforePrev: next(),
  beforeSeq: next(),
  afterSeq: next(),
})

const optional = (text: string | null): string => (text === null ? '' : PRESENT + text)
const orNull = (field: string): string | null => (field === '' ? null : field.slice(PRESENT.length))

function fieldReader(packed: string): () => string {
  const fields = packed.split(END)
  let at = 0
  return () => {
    const field = fields[at]
    if (field === undefined) throw new Error('a batch ended in the middle of a row')
    at += 1
    return field
  }
}
