import { z } from 'zod'
import { LedgerError } from '../../db/audit/entry.ts'
import type { Members } from '../../db/json.ts'
import { Refusal, unprocessable } from '../../plugins/refusal.ts'
import { operation } from './operation.ts'
import { instant, sha256 } from './shapes.ts'

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
    detail: z.custom<Members>().meta({ type: 'object' }),
    config_digest: z.string(),
    version: z.string(),
    prev_hash: sha256,
    row_hash: sha256,
    result: z.string().exactOptional().meta({ description: 'The status, in rows of the MCP path.' }),
  })
  .meta({ id: 'AuditRow' })

/** A text in pieces. `shape`: what it is, when it is whole. */
const pieces = (shape: z.ZodType) => shape as unknown as z.ZodType<AsyncIterable<Uint8Array>>

/**
 * GET /v1/admin/audit: one page of the ledger, newest first unless `order=asc` (docs/protocol.md#audit-api).
 * The value is its JSON text. Does NOT verify it.
 */
export const listAudit = operation({
  name: 'listAudit',
  summary: 'Lists one page of the ledger, newest first unless order=asc.',
  takes: { query: filter },
  output: pieces(z.strictObject({ rows: z.array(row), next_cursor: z.string().nullable() })),
  status: 200,
  reasons: [],
  media: 'application/json',
  run: async ({ database }, { query }, { signal }) => ({
    value: await database.audit.list(query, signal).catch(notRead),
  }),
})

/**
 * GET /v1/admin/audit/export: the whole ledger as NDJSON, which `sallyport verify` verifies offline.
 */
export const exportAudit = operation({
  name: 'exportAudit',
  summary: 'Exports the whole ledger, one line for each row.',
  takes: {},
  output: pieces(z.custom().meta({ type: 'string' })),
  status: 200,
  reasons: [],
  media: 'application/x-ndjson',
  run: async ({ database }, _input, { signal }) => ({
    value: await database.audit.export(signal).catch(notRead),
  }),
})

/**
 * POST /v1/admin/audit/verify: recomputes the whole chain. A damaged one is still a success: the verdict says
 * so.
 */
export const verifyAudit = operation({
  name: 'verifyAudit',
  summary: 'Recomputes the whole chain. A damaged one is still a 200: the verdict says so.',
  takes: {},
  output: z.strictObject({
    ok: z.boolean(),
    rows: z.int(),
    first_bad: z.strictObject({ stream: z.string(), seq: z.int(), problem: z.string() }).exactOptional(),
  }),
  status: 200,
  reasons: [],
  run: async ({ database }, _input, { signal }) => {
    const { ok, rows, first_bad } = await database.audit.verify(signal).catch(notRead)
    return { value: first_bad ? { ok, rows, first_bad } : { ok, rows } }
  },
})

function notRead(error: unknown): never {
  if (error instanceof RangeError)
    throw unprocessable([{ field: 'cursor', message: 'is not a cursor of this service' }])
  if (error instanceof LedgerError && error.code === 'busy')
    throw new Refusal('overloaded', { cause: error, headers: { 'retry-after': '5' } })
  throw error
}
