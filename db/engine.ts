import type { Writer } from './audit/writer.ts'
import { openSqliteWriter } from './sqlite/ledger/thread.ts'

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
export function openWriter({ file }: DatabaseLocation, version: string): Promise<Writer> {
  return openSqliteWriter(file, version)
}
