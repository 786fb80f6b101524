import type { Kysely } from 'kysely'
import { answerTo, LedgerReader } from './audit/reader.ts'
import type { Writer } from './audit/writer.ts'
import type { Schema } from './schema.ts'
import { openSqliteWriter } from './sqlite/ledger/thread.ts'
import { ReaderThread } from './sqlite/reader/thread.ts'

/** Which engine holds the rows, and where. */
export interface DatabaseLocation {
  readonly engine: 'sqlite'
  /** The path as it stands in the URL, or `:memory:`. */
  readonly file: string
}

/**
 * Reads `MCP_PROXY_DATABASE_URL`: the one place that decides the engine.
 * Throws one sentence for the operator where the URL names no engine of ours. The sentence never repeats the
 * URL, which may hold a password.
 */
export function databaseLocation(url: string): DatabaseLocation {
  if (/^postgres(ql)?:/.test(url)) {
    throw new Error(
      'MCP_PROXY_DATABASE_URL names PostgreSQL, which this version does not support: use sqlite:',
    )
  }
  const file = /^sqlite:(.+)$/s.exec(url)?.[1]
  if (file === undefined) throw new Error(NO_DATABASE_URL)
  return { engine: 'sqlite', file }
}

export const NO_DATABASE_URL =
  'MCP_PROXY_DATABASE_URL must be sqlite: and the path of a file, such as sqlite:data/sallyport.db'

/**
 * Opens the engine's half of the ledger on a migrated database, which it then holds alone. Rejects with one
 * sentence where it cannot write there.
 */
export function openWriter({ file }: DatabaseLocation): Promise<Writer> {
  return openSqliteWriter(file)
}

/**
 * Makes the reader of the ledger. It opens nothing until it is asked. `kysely` is this thread's own connection,
 * and the only one that sees a database in memory.
 */
export function ledgerReader({ file }: DatabaseLocation, kysely: Kysely<Schema>): LedgerReader {
  if (file !== ':memory:') return new LedgerReader(new ReaderThread(file))
  return new LedgerReader({
    ask: (question, signal) => answerTo(kysely, question, signal),
    close: () => Promise.resolve(),
  })
}
