import { join } from 'node:path'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import { isObject, type JsonObject, type JsonValue } from '../../db/support/json.ts'
import type { DemoGateway } from './gateway.ts'

/** The time that the last outcome rows may take, which are written after the caller has the answer. ms. */
const OUTCOMES_MS = 5_000

/** Prints the rows of the ledger as a table and verifies their chain offline, from the database file. */
export async function showAudit(gateway: DemoGateway, say: (line: string) => void): Promise<void> {
  const rows = await completeRows(gateway)
  say(
    '\nThe audit ledger: decisions before anything is sent, outcomes after it, each row sealing the one before.\n',
  )
  say(line(['seq', 'who', 'action', 'status', 'sealed', 'what']))
  for (const row of rows) say(line(cells(row)))
  const database = join(gateway.directory, 'data', 'sallyport.db')
  const printed = await gateway.sallyport('verify', database)
  const verdict = printed.trim()
  if (!verdict.startsWith('whole: ')) throw new Error(`the ledger should be whole: ${verdict}`)
  say(`\n  make verify-audit FILE=${database}\n  ${verdict.replaceAll('\n', '\n  ')}`)
}

async function completeRows({ admin }: DemoGateway): Promise<readonly AuditRow[]> {
  const deadline = performance.now() + OUTCOMES_MS
  for (;;) {
    // The admin API's own shape (docs/protocol.md#audit-api).
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
  return [String(row.seq), who, row.action, row.status, row.row_hash.slice(0, 8), rowSummary(row)]
}

function rowSummary({ status, model, tool, detail }: AuditRow): string {
  const called = model ?? tool ?? ''
  if (status === 'allowed') return model !== null && detail.stream === true ? `${model}, streamed` : called
  if (status === 'denied') return `${called}: ${joinTexts(detail.reason, detail.required_capability)}`
  return 'http_status' in detail ? outcomeOf(detail) : tool || changeOf(detail)
}

function outcomeOf({ http_status: http, latency_ms: ms, ...detail }: JsonObject): string {
  const { tokens, result_bytes: bytes } = detail
  const { input, output }: JsonObject = isObject(tokens) ? tokens : {}
  const size = bytes === undefined ? `${text(input)} + ${text(output)} tokens` : `${text(bytes)} bytes`
  return `${text(http)}, ${size}, ${text(ms)} ms`
}

/** Returns the change that an operator, or a read of an MCP server, has made. */
function changeOf(detail: JsonObject): string {
  const { subject, name, resource, capabilities, approved, required_capability: demanded } = detail
  if (Array.isArray(capabilities)) return `${text(subject)} [${joinTexts(...capabilities)}]`
  if (detail.newly_refused !== undefined)
    return `${text(detail.newly_refused)} of ${text(detail.decisions)} calls refused`
  if (Array.isArray(approved)) return `${text(name)}: pinned ${joinTexts(...approved)}`
  if (demanded !== undefined) return `${text(name)} demands ${text(demanded ?? 'a binding only')}`
  return resource === undefined ? '' : `${text(subject)} to ${text(resource)}`
}

const joinTexts = (...values: readonly (JsonValue | undefined)[]): string =>
  values.flatMap((value) => (value === undefined ? [] : text(value))).join(' ')

const text = (value: JsonValue | undefined): string =>
  typeof value === 'string' ? value : JSON.stringify(value ?? null)

const WIDTHS = [5, 14, 31, 9, 10]

const line = (columns: readonly string[]): string =>
  `  ${columns.map((column, i) => column.padEnd(WIDTHS[i] ?? 0)).join('')}`.trimEnd()
