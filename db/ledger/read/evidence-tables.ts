import { isObject, type UnknownRecord } from '../../support/json.ts'
import type { PrincipalSets } from '../authority/principal-sets.ts'
import { FREQUENT_ACTIONS } from '../record/frequent.ts'
import { SHOWN_COLUMNS, type StoredRow } from '../record/leaf.ts'

export const CSV_HEAD = `${SHOWN_COLUMNS.join(',')}\r\n`

/** The form of the tables: 1 in packs of versions up to 0.7, whose inventory does not say it. */
export type CsvForm = 1 | 2

/**
 * Writes a line of CSV (RFC 4180). A text that a spreadsheet would run, also after a semicolon, has an
 * apostrophe before it. Hidden characters are escaped as in JSON.
 */
export const csvLine = (row: StoredRow, form: CsvForm = 2): string =>
  `${SHOWN_COLUMNS.map((name) => csvCell(row[name], form)).join(',')}\r\n`

/** Texts that neither form changes, but for quotation marks around them. */
const HARMLESS = /^[\w{[/:.][\x20-\x3a\x3c-\x7e]*$/

/** Writes a cell as {@link csvLine} does. */
export function csvCell(value: string | number | null, form: CsvForm = 2): string {
  const text = value === null ? '' : String(value)
  const defused = HARMLESS.test(text)
    ? text
    : typeof value !== 'string'
      ? text
      : form === 1
        ? defusedOnce(text)
        : defusedWhole(text)
  return /[",\r\n]/.test(defused) ? `"${defused.replaceAll('"', '""')}"` : defused
}

const defusedOnce = (text: string): string => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text)

const defusedWhole = (text: string): string =>
  text.replace(HIDDEN, escapeCharacter).replace(/(^|;)(["\u0020\u00a0\u3000]*)(?=[=+\-@＝＋－＠])/g, "$1$2'")

// Code points, not properties: both verifiers must go on agreeing, whatever Unicode assigns next.
const HIDDEN = new RegExp(
  `[${[
    '\\u{0}-\\u{1f}\\u{7f}-\\u{9f}\\u{ad}\\u{34f}\\u{61c}\\u{115f}\\u{1160}\\u{17b4}\\u{17b5}\\u{180b}-\\u{180f}',
    '\\u{200b}-\\u{200f}\\u{2028}-\\u{202e}\\u{2060}-\\u{206f}\\u{2800}\\u{3164}\\u{fe00}-\\u{fe0f}\\u{feff}\\u{ffa0}',
    '\\u{fff0}-\\u{fffb}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}',
  ].join('')}]`,
  'gu',
)

const escapeCharacter = (character: string): string =>
  [...character.split('')].map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join('')

export const isGrant = ({ action, status, detail }: StoredRow): boolean =>
  !FREQUENT_ACTIONS.includes(action) &&
  status === 'success' &&
  ('revision' in detailOf(detail) || action.startsWith('mcp_binding.'))

export const isRefusal = ({ status }: StoredRow): boolean => status === 'denied'

export const isSignIn = ({ action }: StoredRow): boolean =>
  action.startsWith('admin.sign') || action === 'admin.secret_used'

export const isAboutTools = ({ action }: StoredRow): boolean => action.startsWith('mcp_resource.')

function detailOf(text: string): UnknownRecord {
  const value: unknown = JSON.parse(text)
  return isObject(value) ? value : {}
}

/**
 * A JSON list, one row on each line: the text before a row, by the number of rows so far, and after the last.
 */
export const JSON_LIST = {
  before: (count: number): string => (count === 0 ? '[\n' : ',\n'),
  end: (count: number): string => (count === 0 ? '[]\n' : '\n]\n'),
}

export const jsonText = (value: object): string => `${JSON.stringify(value, null, 2)}\n`

/** The text of a file of sets. */
export const setsText = (sets: PrincipalSets): string => jsonText({ principals: sets.list() })
