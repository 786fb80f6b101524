import { closeSync, openSync, readSync } from 'node:fs'
import { endianness } from 'node:os'
import { openReadOnly } from '../../../db/sqlite/ledger/rows.ts'

/** The write-ahead log of a database that is written, and the rows that get into its ledger. */
export interface LogWatch {
  /** Counts from now on. */
  readonly hold: () => void
  /**
   * Returns what was written since then, in bytes and rows, and lets go of the database. A process that writes
   * it itself calls this after it has closed it.
   */
  readonly take: () => Logged
}

export interface Logged {
  readonly logBytes: number
  readonly rows: number
}

/** The log's index: SQLite documents the layout of its header as the WAL-index format. */
const HEADER_BYTES = 48
const [PAGE_SIZE, LAST_FRAME, SALT] = [14, 16, 32]
/** What stands before each page in the log. */
const FRAME_HEAD_BYTES = 24

/**
 * Watches a database by a read that lasts until the end: it keeps the log from being begun anew, so that all
 * that is written meanwhile stands in it and can be counted without a question to the writer.
 */
export function watchLog(file: string): LogWatch {
  const db = openReadOnly(file)
  const rows = db.prepare<[], number>('select coalesce(max(seq), 0) from audit_log').pluck()
  // Closed last: to close any descriptor of a file drops all locks that this process has on it.
  const index = openSync(`${file}-shm`, 'r')
  let begin = { ...header(index), rows: 0 }
  return {
    hold: () => {
      db.exec('begin')
      begin = { rows: rows.get() ?? 0, ...header(index) }
    },
    take: () => {
      const end = header(index)
      db.exec('commit')
      const now = rows.get() ?? 0
      db.close()
      closeSync(index)
      // It was begun anew once at most, and then at the first write: where all of it was in the database already.
      const frames = end.salt === begin.salt ? end.lastFrame - begin.lastFrame : end.lastFrame
      return { logBytes: frames * (end.pageSize + FRAME_HEAD_BYTES), rows: now - begin.rows }
    },
  }
}

interface Header {
  readonly pageSize: number
  readonly lastFrame: number
  /** Another one for each time that the log is begun anew. */
  readonly salt: string
}

/** Reads the header, which is in the byte order of this machine. */
function header(index: number): Header {
  const bytes = Buffer.alloc(HEADER_BYTES)
  readSync(index, bytes, 0, HEADER_BYTES, 0)
  const isLittle = endianness() === 'LE'
  return {
    pageSize: isLittle ? bytes.readUInt16LE(PAGE_SIZE) : bytes.readUInt16BE(PAGE_SIZE),
    lastFrame: isLittle ? bytes.readUInt32LE(LAST_FRAME) : bytes.readUInt32BE(LAST_FRAME),
    salt: bytes.toString('hex', SALT, SALT + 8),
  }
}
