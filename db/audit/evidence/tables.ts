import { FREQUENT } from '../../../db/audit/frequent.ts'
import type { StoredRow } from '../../../db/audit/leaf.ts'
import { isObject, type Members } from '../../../db/json.ts'

const COLUMNS = [
  ...([
    'stream',
    'seq',
    'recorded_at',
    'request_id',
    'principal_id',
    'principal_type',
    'action',
    'status',
  ] as const),
  ...([
    'tool',
    'model',
    'provider',
    'cert_thumbprint',
    'dpop_jkt',
    'detail',
    'config_digest',
    'version',
  ] as const),
  ...(['prev_hash', 'row_hash'] as const),
]

export const CSV_HEAD = `${COLUMNS.join(',')}\r\n`

/** A row as a line of CSV (RFC 4180). A text that a spreadsheet would run as a formula has an apostrophe in front. */
export const csvLine = (row: StoredRow): string => `${COLUMNS.map((name) => cell(row[name])).join(',')}\r\n`

function cell(value: string | number | null): string {
  const text = value === null ? '' : String(value)
  const defused = typeof value === 'string' && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(defused) ? `"${defused.replaceAll('"', '""')}"` : defused
}

/** Whether a row changes what somebody may do. */
export const isGrant = ({ action, status, detail }: StoredRow): boolean =>
  !FREQUENT.includes(action) &&
  status === 'success' &&
  ('revision' in detailOf(detail) || action.startsWith('mcp_binding.'))

export const isRefusal = ({ status }: StoredRow): boolean => status === 'denied'

export const isSignIn = ({ action }: StoredRow): boolean =>
  action.startsWith('admin.sign') || action === 'admin.secret_used'

/** Whether a row says what became of the tools of an MCP server. */
export const isAboutTools = ({ action }: StoredRow): boolean => action.startsWith('mcp_resource.')

export function detailOf(text: string): Members {
  const value: unknown = JSON.parse(text)
  return isObject(value) ? value : {}
}

/** What a principal held, as its last row of change says it. */
export interface HeldSet {
  readonly principal: string
  readonly revision: number
  readonly is_active: boolean
  readonly capabilities: readonly unknown[]
  /** The row that says so. */
  readonly row: string
}

/** The sets of all principals, by the rows that change them. */
export class Sets {
  readonly #held = new Map<string, HeldSet>()

  see({ stream, seq, detail }: StoredRow): void {
    const { subject, revision, capabilities, is_active: active } = detailOf(detail)
    if (typeof subject !== 'string' || typeof revision !== 'number' || !Array.isArray(capabilities)) return
    const held = {
      principal: subject,
      revision,
      is_active: active !== false,
      capabilities,
      row: `${stream}:${seq}`,
    }
    this.#held.set(subject, held)
  }

  list(): readonly HeldSet[] {
    return [...this.#held.values()].toSorted((one, other) => (one.principal < other.principal ? -1 : 1))
  }
}
