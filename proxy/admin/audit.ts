import { Readable } from 'node:stream'
import { z } from 'zod'
import { exportLines, listRows, verifyDatabase } from '../../db/audit/read.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { unprocessable } from '../../plugins/refusal.ts'
import { json, type Reply } from '../http/reply.ts'
import type { AdminContext } from './change.ts'
import { parse } from './parse.ts'

const text = z.string().max(1024)
const instant = z.iso.datetime({ offset: true }).transform((value) => Date.parse(value))

const filter = z.strictObject({
  principal: text.exactOptional(),
  action: text.exactOptional(),
  status: text.exactOptional(),
  request_id: text.exactOptional(),
  since: instant.exactOptional(),
  until: instant.exactOptional(),
  order: z.enum(['asc', 'desc']).exactOptional(),
  limit: z.coerce.number().int().min(1).max(1000).exactOptional(),
  cursor: text.exactOptional(),
})

/** GET /v1/admin/audit: one page of the ledger, newest first unless `order=asc` (WIRE.md §2). Does NOT verify it. */
export const listAudit =
  ({ database }: AdminContext) =>
  async ({ query }: Arrival): Promise<Reply> => {
    const asked = parse(filter, Object.fromEntries(new URLSearchParams(query)))
    try {
      return json(200, await listRows(database.kysely, asked))
    } catch (error) {
      if (!(error instanceof RangeError)) throw error
      throw unprocessable([{ field: 'cursor', message: 'is not a cursor of this service' }])
    }
  }

/** GET /v1/admin/audit/export: the whole ledger as NDJSON, which `sallyport verify-audit` verifies offline. */
export const exportAudit =
  ({ database }: AdminContext) =>
  (): Reply => ({
    status: 200,
    headers: { 'content-type': 'application/x-ndjson' },
    body: { source: Readable.from(exportLines(database.kysely), { objectMode: false }) },
  })

/** POST /v1/admin/audit/verify: recomputes the whole chain. A damaged one is still a 200: the verdict says so. */
export const verifyAudit =
  ({ database }: AdminContext) =>
  async (): Promise<Reply> => {
    const { ok, rows, first_bad } = await verifyDatabase(database.kysely)
    return json(200, first_bad ? { ok, rows, first_bad } : { ok, rows })
  }
