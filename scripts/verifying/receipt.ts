import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { MalformedNote } from '../../db/ledger/tree/note.ts'
import { parseTlogProof, provesLeaf } from '../../db/ledger/tree/proofs.ts'
import {
  isSignedBy,
  type LogTrust,
  NO_STAMPS,
  type StampTally,
  type WitnessSummary,
  witnessesOf,
} from '../../db/ledger/tree/trusted.ts'
import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { ambiguityOf } from './readings.ts'

/** The result of verifying a receipt (docs/ledger.md#receipts). */
export interface ReceiptVerdict {
  readonly code: 0 | 2 | 3
  /** The fault, as a sentence; null if there is none. */
  readonly problem: string | null
  /** The facts that it proves, line by line. */
  readonly lines: readonly string[]
  readonly vouched: boolean
  /** The rows under the largest checkpoint of it that was kept elsewhere; 0 if none was. */
  readonly kept: number
  readonly witnessed: readonly WitnessSummary[]
  readonly stamps: Omit<StampTally, 'problems'>
}

interface ReceiptRow {
  readonly leaf: string
  readonly stream: string
  readonly seq: number
  readonly proof: string
}

/** The rows of a receipt and the salts that open their commitments; null if a value is none. */
export function receiptIn(
  value: unknown,
): { readonly rows: readonly ReceiptRow[]; readonly salts: UnknownRecord } | null {
  if (!isObject(value) || !Array.isArray(value.rows) || value.rows.length === 0) return null
  const rows: readonly unknown[] = value.rows
  return rows.every(isRow) ? { rows, salts: isObject(value.salts) ? value.salts : {} } : null
}

const isRow = (row: unknown): row is ReceiptRow =>
  isObject(row) &&
  [row.leaf, row.stream, row.proof].every((text) => typeof text === 'string') &&
  Number.isSafeInteger(row.seq)

/**
 * Verifies a receipt: each leaf is in the tree of a checkpoint that its log has signed, and, if a body is
 * given, the decision commits to exactly these bytes.
 */
export async function verifyReceipt(
  { rows, salts }: NonNullable<ReturnType<typeof receiptIn>>,
  trusted: LogTrust,
  body: Buffer | null,
): Promise<ReceiptVerdict> {
  const lines: string[] = []
  const witnessed = new Map<string, WitnessSummary>()
  const bad = (code: 2 | 3, problem: string): ReceiptVerdict => ({
    code,
    problem,
    lines,
    vouched: false,
    kept: 0,
    witnessed: [],
    stamps: NOT_STAMPED,
  })
  const opened: UnknownRecord[] = []
  let first: UnknownRecord | null = null
  let keptRows = 0
  let vouched = trusted.keys.length > 0 || trusted.checkpoints.length > 0
  for (const { leaf, stream, seq, proof } of rows) {
    const place = `${stream}:${seq}`
    const row = parseObjectOrNull(leaf)
    // Half a surrogate pair has no bytes of its own: another leaf would have the same hash.
    if (!leaf.isWellFormed() || !row || row.stream !== stream || row.seq !== seq)
      return bad(2, `row ${place} is not what its leaf says`)
    const order = first && outOfOrder(row, first)
    if (order !== null) return bad(2, `row ${place} ${order}`)
    first ??= row
    const proven = proofOf(proof)
    if (!proven) return bad(3, `the proof of row ${place} cannot be read`)
    const { checkpoint, note, index } = proven
    if (!provesLeaf(proven, leaf))
      return bad(3, `row ${place} is not in the checkpoint of ${checkpoint.size} rows`)
    if (isDeep(row, MAX_ROW_DEPTH) || canonicalText(row) !== leaf)
      return bad(2, `row ${place} is not written as a row is`)
    const isOurs = trusted.keys.some(({ name }) => name === checkpoint.origin)
    if (trusted.keys.length > 0 && !(isOurs && isSignedBy(note, trusted.keys)))
      return bad(3, `the checkpoint of ${checkpoint.size} rows is not signed by the key that was given`)
    const kept = trusted.checkpoints.find(({ size }) => size === checkpoint.size)
    if (kept && (!kept.root.equals(checkpoint.root) || kept.origin !== checkpoint.origin))
      return bad(3, `the checkpoint of ${checkpoint.size} rows is not the one that was kept`)
    if (trusted.keys.length === 0 && !kept) vouched = false
    if (kept) keptRows = Math.max(keptRows, kept.size)
    for (const one of witnessesOf({ ...checkpoint, note }, trusted.witnesses)) witnessed.set(one.name, one)
    const [fault] = (await trusted.stamps?.check({ ...checkpoint, note }, [])) ?? []
    if (fault !== undefined) return bad(3, fault)
    lines.push(
      `row ${place}: ${String(row.status)} ${String(row.action)} at ${String(row.recorded_at)}, leaf ${index} of ${checkpoint.size} in ${checkpoint.origin}`,
    )
    if (isObject(row.detail)) opened.push(row.detail)
  }
  const missing = trusted.witnesses.find(({ name }) => !witnessed.has(name))
  if (missing) return bad(3, `no checkpoint is cosigned by the witness ${missing.name}`)
  const { problems, ...stamps } = trusted.stamps?.end() ?? NO_STAMPS
  const [unstamped] = problems
  if (unstamped !== undefined) return bad(3, unstamped)
  if (body) {
    const label = openedBy(opened, salts, body)
    if (label === null) return bad(2, 'the body is not the one that was recorded')
    const text = jsonText(body)
    const ambiguity = text === null ? null : ambiguityOf(text)
    if (ambiguity && label === 'arguments_sha256') return bad(2, `the body ${AMBIGUOUS}`)
    lines.push(`${OPENED[label](body.length)} (${label})`)
    if (ambiguity === 'twice') lines.push(`it ${AMBIGUOUS}`)
  }
  return {
    code: 0,
    problem: null,
    lines,
    vouched,
    kept: keptRows,
    witnessed: [...witnessed.values()],
    stamps,
  }
}

type Label = 'body_sha256' | 'arguments_sha256' | 'result_sha256'

/** The sentences about a body, by the commitment that it opens. */
const OPENED: Readonly<Record<Label, (bytes: number) => string>> = {
  body_sha256: (bytes) => `the request body of ${bytes} bytes is the one that was judged`,
  arguments_sha256: (bytes) => `the arguments in the ${bytes} bytes of the body are those that were judged`,
  result_sha256: (bytes) => `the ${bytes} bytes are the result that was recorded, not the request`,
}

const AMBIGUOUS =
  'names a member twice in one object, or is too deep: two readers can take it for two different things'

const NOT_STAMPED = { stamped: [], unchecked: 0 }

/**
 * Why a row cannot stand in a receipt after its first one; null if it can. A receipt is about one request.
 */
function outOfOrder(row: UnknownRecord, first: UnknownRecord): string | null {
  if (row.request_id !== first.request_id) return 'is of another request'
  return row.status === 'allowed' || row.status === 'denied' ? 'is a decision, which comes first' : null
}

/** The commitment that a body opens (docs/ledger.md#commitments): as it is, or as the arguments of a tool. */
function openedBy(details: readonly UnknownRecord[], salts: UnknownRecord, body: Buffer): Label | null {
  const forms: readonly (readonly [Label, Buffer | null])[] = [
    ['body_sha256', body],
    ['arguments_sha256', canonicalBytes(body)],
    ['result_sha256', body],
  ]
  for (const [label, bytes] of forms) {
    const salt = salts[label]
    // All of one length: else some of the body could be said to be salt, and the rest to be all of it.
    if (typeof salt !== 'string' || !/^[0-9a-f]{32}$/.test(salt) || bytes === null) continue
    const commitment = hash('sha256', Buffer.concat([Buffer.from(salt, 'hex'), bytes]))
    if (details.some((detail) => detail[label] === commitment)) return label
  }
  return null
}

function canonicalBytes(body: Buffer): Buffer | null {
  const text = jsonText(body)
  const value = text === null ? null : parseObjectOrNull(text)
  const canonical = value && canonicalText(value)
  return canonical === null ? null : Buffer.from(canonical)
}

function canonicalText(value: UnknownRecord): string | null {
  try {
    return canonicalize(value) ?? null
  } catch (error) {
    // Half a surrogate pair, or a number that no double holds, which have no canonical form.
    if (error instanceof Error) return null
    throw error
  }
}

/** The levels of a row: those of its detail (docs/ledger.md#leaf), and its own. */
const MAX_ROW_DEPTH = 17

const isDeep = (value: unknown, left: number): boolean =>
  typeof value === 'object' &&
  value !== null &&
  (left === 0 || Object.values(value).some((inside) => isDeep(inside, left - 1)))

/** The text of a body that is a JSON object; null if it is none. */
function jsonText(body: Buffer): string | null {
  const text = isUtf8(body) ? body.toString() : null
  return text !== null && parseObjectOrNull(text) ? text : null
}

function parseObjectOrNull(text: string): UnknownRecord | null {
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

function proofOf(text: string) {
  try {
    return parseTlogProof(text)
  } catch (error) {
    if (error instanceof MalformedNote) return null
    throw error
  }
}
