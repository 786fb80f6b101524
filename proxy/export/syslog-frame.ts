import type { LedgerLine } from '../../db/ledger/cursors/line.ts'
import { actionOf } from './format.ts'

/** Facility 13, log audit; severity 6, informational (RFC 5424 §6.2.1). */
const PRIORITY = 13 * 8 + 6
/** The most characters of MSGID (RFC 5424 §6). */
const MAX_MSGID = 32

export interface SyslogSender {
  readonly hostname: string
  readonly pid: number
}

/**
 * Writes a frame of syslog over TLS: the length in bytes, a space, the message (RFC 5425 §4.3, RFC 5424). Its time is
 * that of the row.
 */
export function syslogFrame(row: LedgerLine, line: string, { hostname, pid }: SyslogSender): string {
  const id = actionOf(row).slice(0, MAX_MSGID)
  const message = `<${PRIORITY}>1 ${recordedAt(row)} ${hostname} sallyport ${pid} ${id} - ${line}`
  return `${Buffer.byteLength(message)} ${message}`
}

// The writer's form; anything else is the nil value (RFC 5424 §6.2.3).
const RECORDED_AT = /"recorded_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"/g

function recordedAt({ line }: LedgerLine): string {
  // The last: only texts without a bare quotation mark follow it.
  return [...line.matchAll(RECORDED_AT)].at(-1)?.[1] ?? '-'
}
