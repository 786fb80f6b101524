import { z } from 'zod'
import { exportLines, listRows, verifyDatabase } from '../../db/audit/read.ts'
import type { Members } from '../../db/json.ts'
import { unprocessable } from '../../plugins/refusal.ts'
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

/**
 * GET /v1/admin/audit: one page of the ledger, newest first unless `order=asc` (docs/protocol.md#audit-api).
 * Does NOT verify it.
 */
export const listAudit = operation({
  name: 'listAudit',
  summary: 'Lists one page of the ledger, newest first unless order=asc.',
  takes: { query: filter },
  output: z.strictObject({ rows: z.array(row), next_cursor: z.string().nullable() }),
  status: 200,
  reasons: [],
  run: async ({ database }, { query }) => {
    try {
      return { value: await listRows(database.kysely, query) }
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      throw unprocessable([{ field: 'cursor', message: 'is not a cursor of this service' }])
    }
  },
})

/**
 * GET /v1/admin/audit/export: the whole ledger as NDJSON, which `sallyport verify-audit` verifies offline.
 */
export const exportAudit = operation({
  name: 'exportAudit',
  summary: 'Exports the whole ledger, one line for each row.',
  takes: {},
  output: z.custom<AsyncIterable<string>>().meta({ type: 'string' }),
  status: 200,
  reasons: [],
  media: 'application/x-ndjson',
  run: ({ database }) => Promise.resolve({ value: exportLines(database.kysely) }),
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
  run: async ({ database }) => {
    const { ok, rows, first_bad } = await verifyDatabase(database.kysely)
    return { value: first_bad ? { ok, rows, first_bad } : { ok, rows } }
  },
})
