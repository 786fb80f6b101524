import { join } from 'node:path'
import type { AuditRow } from '../db/audit/read.ts'
import type { Json } from '../db/json.ts'
import type { DemoGateway } from './demo-gateway.ts'

/** How long the last outcome rows may take: they are written after the caller has the answer. ms. */
const OUTCOMES_MS = 5_000

/** Prints the rows of the ledger as a table and verifies their chain offline, from the database file. */
export async function showAudit(gateway: DemoGateway, say: (line: string) => void): Promise<void> {
  const rows = await completeRows(gateway)
  say(
    '\nThe audit ledger: decisions before anything is sent, outcomes after it, each row sealing the one before.\n',
  )
  say(line(['seq', 'who', 'action', 'status', 'what', 'sealed']))
  for (const row of rows) say(line(cells(row)))
  const verdict = await gateway.script('verify-audit.ts', join(gateway.directory, 'data', 'sallyport.db'))
  if (!verdict.startsWith('whole: ')) throw new Error(`the ledger should be whole: ${verdict.trim()}`)
  say(`\n  node scripts/verify-audit.ts data/sallyport.db\n  ${verdict.trim()}`)
}

async function completeRows({ admin }: DemoGateway): Promise<readonly AuditRow[]> {
  const deadline = performance.now() + OUTCOMES_MS
  for (;;) {
    // The admin API's own shape (WIRE.md §2).
    const { rows } = (await admin('GET', '/v1/admin/audit?order=asc&limit=1000')) as { rows: AuditRow[] }
    const open = rows.filter((row) => row.status === 'allowed' && !hasOutcome(row, rows))
    if (open.length === 0) return rows
    if (performance.now() > deadline) throw new Error(`${open.length} allowed calls have no outcome row`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

const hasOutcome = ({ request_id: id, seq }: AuditRow, rows: readonly AuditRow[]): boolean =>
  rows.some((row) => row.request_id === id && row.seq > seq)

function cells(row: AuditRow): string[] {
  const who = row.principal_id ?? 'gateway'
  return [String(row.seq), who, row.action, row.status, whatOf(row), row.row_hash.slice(0, 8)]
}

function whatOf({ status, model, detail }: AuditRow): string {
  if (status === 'allowed') return `${model}${detail.stream === true ? ', streamed' : ''}`
  if (status === 'denied') return `${model}: ${text(detail.reason)} ${text(detail.required_capability)}`
  if ('http_status' in detail) {
    const { http_status: http, input_tokens: input, output_tokens: output } = detail
    return `${text(http)}, ${text(input)} + ${text(output)} tokens, ${text(detail.latency_ms)} ms`
  }
  if (!Array.isArray(detail.capabilities)) return ''
  return `${text(detail.subject)} [${detail.capabilities.join(', ')}]`
}

const text = (value: Json | undefined): string =>
  typeof value === 'string' ? value : JSON.stringify(value ?? null)

const WIDTHS = [5, 14, 28, 9, 42]

const line = (columns: readonly string[]): string =>
  `  ${columns.map((column, i) => column.padEnd(WIDTHS[i] ?? 0)).join('')}`.trimEnd()
