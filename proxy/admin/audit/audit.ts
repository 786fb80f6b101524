import { Readable } from 'node:stream'
import { json } from 'node:stream/consumers'
import { z } from 'zod'
import { COUNT_LEVELS } from '../../../db/ledger/counts/row-counts.ts'
import { type AuditRow, type LedgerPage, newestRow } from '../../../db/ledger/read/read.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import { UnreadableSegment } from '../../../db/ledger/tree/rows.ts'
import { archiveBoundary } from '../../../db/ledger/tree/segments.ts'
import { ledgerNameOf } from '../../../db/principals/subject-keys.ts'
import { printLedgerCursor } from '../../../db/support/cursor.ts'
import type { UnknownRecord } from '../../../db/support/json.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import { Refusal, unprocessableBody } from '../../../plugins/refusal.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { ndjsonWithProgress } from '../operation/in-lines.ts'
import { operation, readOperation } from '../operation/operation.ts'
import { instant, sha256 } from '../operation/shapes.ts'

/** The members of `detail` that are commitments. */
const COMMITTED = ['body_sha256', 'arguments_sha256', 'result_sha256']

interface CommitmentRow {
  readonly principal_id: string | null
  readonly request_id: string | null
  readonly detail: UnknownRecord
}

/**
 * The salts of a row's commitments by member name (docs/ledger.md#commitments). Hex. Empty if the principal
 * was erased.
 */
export async function saltsOf(
  { principal_id: ref, request_id: id, detail }: CommitmentRow,
  keys: AdminContext['subjectKeys'],
): Promise<Readonly<Record<string, string>>> {
  const key = ref === null || id === null ? null : await keys.find(ref)
  if (!key || id === null) return {}
  const commitments = commitmentsBy(key, id)
  return Object.fromEntries(
    COMMITTED.filter((label) => label in detail).map((label) => [label, commitments.salt(label)]),
  )
}

/** Counts the rows of a window by action, status and spans of time. For dashboards; no route has it. */
export const countAudit = readOperation({
  name: 'countAudit',
  demands: 'admin.audit',
  summary: 'Counts the rows of a window of time by action and status.',
  takes: {
    query: z.strictObject({
      level: z.literal(COUNT_LEVELS),
      since: z.string().max(32),
      until: z.string().max(32),
    }),
  },
  output: z.strictObject({
    counts: z.array(
      z.strictObject({ span: z.string(), action: z.string(), status: z.string(), rows: z.int() }),
    ),
    uncounted: z.int(),
  }),
  run: async ({ database, ledgerPlaces }, { query }, caller) => {
    const { counts, uncounted } = await ledgerPlaces.run('pages', caller, () =>
      database.rowCounts.within(query, caller.hangup.signal).catch(throwLedgerRefusal),
    )
    return { value: { counts: [...counts], uncounted } }
  },
})

const text = z.string().max(1024)
const moment = z.iso
  .datetime({ offset: true })
  .transform((value) => Date.parse(value))
  .meta({ description: 'RFC 3339.' })

const filter = z.strictObject({
  principal: text.exactOptional(),
  action: text.exactOptional(),
  status: text.exactOptional(),
  request_id: text.exactOptional(),
  since: moment.exactOptional(),
  until: moment.exactOptional(),
  order: z.enum(['asc', 'desc']).exactOptional(),
  limit: z.coerce.number().int().min(1).max(1000).exactOptional(),
  cursor: text.exactOptional(),
  archive: z.literal('no').exactOptional().meta({ description: 'no: the rows of the database alone.' }),
})

const row = z
  .strictObject({
    stream: z.string(),
    seq: z.int().min(1),
    recorded_at: instant,
    request_id: z.string().nullable(),
    principal_id: z.string().nullable(),
    principal_type: z.string().nullable(),
    action: z.string(),
    status: z.string(),
    tool: z.string().nullable(),
    model: z.string().nullable(),
    provider: z.string().nullable(),
    cert_thumbprint: sha256.nullable(),
    dpop_jkt: z.string().nullable(),
    detail: z.custom<UnknownRecord>().meta({ type: 'object' }),
    config_digest: z.string(),
    version: z.string(),
    prev_hash: sha256,
    row_hash: sha256,
    result: z.string().exactOptional().meta({ description: 'The status, in rows of the MCP path.' }),
    principal_name: z.string().exactOptional().meta({
      description:
        'The id of a user, in addition to its pseudonym in principal_id, as long as the user exists.',
    }),
    subject_name: z.string().exactOptional().meta({ description: 'The same for detail.subject.' }),
    salts: z
      .record(z.string(), z.string())
      .exactOptional()
      .meta({
        description:
          'With ?request_id=: what opens the commitments of detail, by the name of the member. Hex. Empty if the ' +
          'principal was erased.',
      }),
  })
  .meta({ id: 'AuditRow' })

const place = z.strictObject({
  stream: z.string(),
  seq: z.int().min(1),
  recorded_at: instant,
  row_hash: sha256,
})

const archivedPart = z
  .strictObject({
    read: z
      .array(z.string())
      .meta({ description: 'The files of the archive that this page has looked through.' }),
    more: z.strictObject({ segments: z.int(), rows: z.int(), file: z.string() }).nullable().meta({
      description: 'What next_cursor goes on into: files, their rows, and the one that comes next.',
    }),
    unreadable: z
      .array(z.string())
      .meta({ description: 'Where rows are that cannot be read here, each as a sentence.' }),
  })
  .meta({ description: 'Absent: the question needs no row that is archived, or not on this page.' })

/** A text in pieces. `shape`: its form once it is whole. */
const pieces = (shape: z.ZodType) => shape as unknown as z.ZodType<AsyncIterable<Uint8Array>>

/**
 * GET /v1/admin/audit: one page, newest first unless `order=asc` (docs/protocol.md#audit-api), as JSON text.
 * Does NOT verify it.
 */
export const listAudit = readOperation({
  name: 'listAudit',
  demands: 'admin.audit',
  summary: 'Lists one page of the ledger, newest first unless order=asc.',
  takes: { query: filter },
  output: pieces(
    z.strictObject({
      rows: z.array(row),
      next_cursor: z
        .string()
        .nullable()
        .meta({ description: 'Null: the last page. Others may have no row.' }),
      archived: archivedPart.exactOptional(),
    }),
  ),
  media: 'application/json',
  run: async ({ database, subjectKeys, ledgerPlaces }, { query }, caller) => {
    const { principal, ...rest } = query
    const filter =
      principal === undefined ? rest : { ...rest, principal: await ledgerNameOf(database, principal) }
    const pieces = await ledgerPlaces.stream('pages', caller, (signal) =>
      database.audit.list(filter, signal).catch(throwLedgerRefusal),
    )
    return { value: query.request_id === undefined ? pieces : withSalts(pieces, subjectKeys) }
  },
})

/** The rows of one request are few: the salts of their commitments go with them. */
async function* withSalts(
  pieces: AsyncIterable<Uint8Array>,
  keys: AdminContext['subjectKeys'],
): AsyncGenerator<Uint8Array> {
  const page = await parseLedgerPage(pieces)
  const rows: object[] = []
  for (const row of page.rows) rows.push({ ...row, salts: await saltsOf(row, keys) })
  yield Buffer.from(JSON.stringify({ ...page, rows }))
}

export const exportAudit = readOperation({
  name: 'exportAudit',
  demands: 'admin.audit',
  summary: 'Exports the whole ledger, one line for each row.',
  takes: {},
  reasons: ['not_found'],
  output: pieces(z.custom().meta({ type: 'string' })),
  media: 'application/x-ndjson',
  run: async ({ database, ledgerPlaces }, _input, caller) => ({
    value: await ledgerPlaces.stream('exports', caller, (signal) =>
      database.audit.export(signal).catch(throwLedgerRefusal),
    ),
  }),
})

const verdict = z.strictObject({
  ok: z.boolean(),
  rows: z.int(),
  first_bad: z.strictObject({ stream: z.string(), seq: z.int(), problem: z.string() }).exactOptional(),
})

export type AuditVerdict = z.infer<typeof verdict>

const verifies = {
  demands: 'admin.audit',
  action: 'admin.read',
  takes: {},
  reasons: [],
} as const

export const verifyAudit = operation({
  ...verifies,
  name: 'verifyAudit',
  summary: 'Recomputes the whole chain. The answer is 200 even if the chain is damaged: see the verdict.',
  output: verdict,
  run: async (context, _input, caller) => ({ value: await runVerification(context, caller) }),
})

/** The same, with its progress: lines `{"progress": {"rows", "of"}}`, and then the verdict. */
export const verifyAuditWithProgress = operation({
  ...verifies,
  name: 'verifyAuditWithProgress',
  summary: 'The same, after lines about the progress.',
  media: 'application/x-ndjson',
  output: z.unknown(),
  run: async (context, _input, caller) => {
    const boundary = await archiveBoundary(context.database.kysely)
    const of = await context.database.treeRows.between(boundary.place, Number.MAX_SAFE_INTEGER)
    const told = (onProgress: (progress: { rows: number; of: number }) => void) =>
      runVerification(context, caller, (rows) => onProgress({ rows, of: Math.max(rows, of) }))
    return { value: await ndjsonWithProgress(told) }
  },
})

async function runVerification(
  { database, ledgerPlaces }: Pick<AdminContext, 'database' | 'ledgerPlaces'>,
  caller: AdminCaller,
  onRows?: (rows: number) => void,
): Promise<AuditVerdict> {
  const { ok, rows, first_bad } = await ledgerPlaces.run('verifications', caller, () =>
    database.audit.verify(caller.hangup.signal, onRows).catch(throwLedgerRefusal),
  )
  return first_bad ? { ok, rows, first_bad } : { ok, rows }
}

/** The row that was recorded last, in whichever stream. */
export const ledgerHead = ({ database }: Pick<AdminContext, 'database'>) => newestRow(database.kysely)

export const showHead = readOperation({
  name: 'getAuditHead',
  demands: 'admin.audit',
  summary: 'Shows the place and the hash of the row that was recorded last.',
  takes: {},
  output: z.strictObject({ head: place.nullable() }),
  run: async (context) => ({ value: { head: (await ledgerHead(context)) ?? null } }),
})

export const parseLedgerPage = async (pieces: AsyncIterable<Uint8Array>): Promise<LedgerPage> =>
  // Proven by pageTexts.
  (await json(Readable.from(pieces))) as LedgerPage

/** The cursor of the page after a row, newest first. */
export const cursorAfterRow = ({ recorded_at, stream, seq }: AuditRow): string =>
  printLedgerCursor({ recorded_at, stream, seq })

export function throwLedgerRefusal(error: unknown): never {
  if (error instanceof RangeError)
    throw unprocessableBody([{ field: 'cursor', message: 'is not a cursor of this service' }])
  if (error instanceof UnreadableSegment) throw new Refusal('not_found', { message: error.message })
  if (error instanceof LedgerError && error.code === 'busy')
    throw new Refusal('overloaded', { cause: error, headers: { 'retry-after': '5' } })
  throw error
}
