import { hash } from 'node:crypto'
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs'

/** The last row of a chain that was made durable. */
export interface DurableHead {
  readonly seq: number
  /** `row_hash`. */
  readonly hash: string
}

/** The file that says where a chain ended (docs/ledger.md#head-file). One record of fixed length. */
export const headPath = (database: string): string => `${database}-head`

/** Reads the file; null if there is none, or if it was not written whole. */
export function readHead(database: string): DurableHead | null {
  const record = Buffer.alloc(RECORD_LENGTH)
  try {
    const fd = openSync(headPath(database), 'r')
    try {
      readSync(fd, record, 0, RECORD_LENGTH, 0)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    if (isErrorOf(error, 'ENOENT')) return null
    throw error
  }
  return parse(record.toString('latin1'))
}

export interface HeadFile {
  readonly note: (head: DurableHead) => void
  readonly close: () => void
}

/**
 * Opens the file for the chain's writer. No fsync: after a crash, or a failed write, it may be behind, and
 * then says nothing.
 */
export function openHeadFile(database: string): HeadFile {
  const fd = openSync(headPath(database), constants.O_RDWR | constants.O_CREAT, 0o600)
  let noted = 0
  const note = (head: DurableHead): void => {
    if (head.seq === noted) return
    try {
      writeSync(fd, recordOf(head), 0, 'latin1')
      noted = head.seq
    } catch (error) {
      // The rows are durable: nobody's call fails because the file alongside them does.
      if (!isErrorOf(error, 'ENOSPC', 'EIO', 'EDQUOT')) throw error
    }
  }
  return { note, close: () => closeSync(fd) }
}

/** Why rows that end at `found` cannot be those that the file speaks of; null if they can. */
export type HeadProblem = { readonly kind: 'ahead' | 'other'; readonly problem: string }

/** Compares the file with the rows. `hashAt`: of the row that the file names, undefined if there is none. */
export function headProblem(
  head: DurableHead | null,
  last: number,
  hashAt: string | undefined,
): HeadProblem | null {
  if (head === null || head.hash === hashAt) return null
  if (head.seq > last) {
    const problem = `the rows end at main:${last}, but main:${head.seq} was written: they were cut short, or an older copy was put in their place`
    return { kind: 'ahead', problem }
  }
  return { kind: 'other', problem: `row main:${head.seq} is not the one that was written there` }
}

const isErrorOf = (error: unknown, ...codes: readonly string[]): boolean =>
  error instanceof Error && 'code' in error && codes.includes(String(error.code))

function recordOf({ seq, hash: rowHash }: DurableHead): string {
  const text = `${String(seq).padStart(16, '0')} ${rowHash}`
  return `${text} ${checkOf(text)}\n`
}

// Without it half an old record and half a new one would be read as a head that never was.
const checkOf = (text: string): string => hash('sha256', text).slice(0, 16)

const RECORD_LENGTH = 99
const RECORD = /^((\d{16}) ([0-9a-f]{64})) ([0-9a-f]{16})\n$/

function parse(record: string): DurableHead | null {
  const [, text = '', seq = '', rowHash = '', check] = RECORD.exec(record) ?? []
  return check === checkOf(text) ? { seq: Number(seq), hash: rowHash } : null
}
