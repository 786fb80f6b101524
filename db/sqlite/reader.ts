// The thread that reads the ledger for operators: SQLite answers at once, and a question may take seconds
// (docs/threats.md#a7).
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { type AnswerPieces, answerTo, type LedgerQuestion } from '../ledger/read/reader.ts'
import type { DatabaseSchema } from '../schema.ts'

export interface ReaderTasks {
  /** Answers a question. Gives way to other answers between two reads. */
  readonly answer: (question: LedgerQuestion, signal: AbortSignal) => AnswerPieces
}

export function openTasks(file: string): ReaderTasks {
  const connection = new SQLite(file, { readonly: true, fileMustExist: true })
  // The schema is data too: what somebody planted in it must not call functions with side effects.
  connection.pragma('trusted_schema = OFF')
  const db = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
  return { answer: (question, signal) => answerTo(db, question, signal) }
}
