import { isObject, type Members } from '../../json.ts'
import { FREQUENT } from '../frequent.ts'
import type { StoredRow } from '../leaf.ts'

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

/** Whether a row says what became of an MCP server and its tools. */
export const isAboutTools = ({ action }: StoredRow): boolean => action.startsWith('mcp_resource.')

function detailOf(text: string): Members {
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
  readonly #held: Map<string, HeldSet>

  /** `before`: what they held in front of the first row. */
  constructor(before: readonly HeldSet[] = []) {
    this.#held = new Map(before.map((held) => [held.principal, held]))
  }

  see({ stream, seq, action, detail }: StoredRow): void {
    if (FREQUENT.includes(action)) return
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

  /** The text of a file of them. */
  text(): string {
    const principals = [...this.#held.values()].toSorted((one, other) =>
      one.principal < other.principal ? -1 : 1,
    )
    return jsonText({ principals })
  }
}

/** A list in JSON, a row on each line: what stands in front of a row, by how many there were, and behind the last. */
export const LIST = {
  before: (count: number): string => (count === 0 ? '[\n' : ',\n'),
  end: (count: number): string => (count === 0 ? '[]\n' : '\n]\n'),
}

export const jsonText = (value: object): string => `${JSON.stringify(value, null, 2)}\n`
