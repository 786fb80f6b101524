// The thread that reads the ledger for operators: SQLite answers at once, and a question may take seconds
// (docs/threats.md#a7).
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { type AnswerPieces, answerTo, type LedgerQuestion } from '../ledger/read/reader.ts'
import type { DatabaseSchema } from '../schema.ts'

/** A database that the process has open. `nth`: of all that it opened; a file may have been replaced since. */
export interface OpenedLedger {
  readonly nth: number
  readonly file: string
}

export interface ReaderTasks {
  /** Answers a question. Gives way to other answers between two reads. */
  readonly answer: (
    input: { readonly ledger: OpenedLedger; readonly question: LedgerQuestion },
    signal: AbortSignal,
  ) => AnswerPieces
  readonly close: (ledger: OpenedLedger) => Promise<void>
}

export function openTasks(): ReaderTasks {
  const opened = new Map<number, Kysely<DatabaseSchema>>()
  const connectionTo = ({ nth, file }: OpenedLedger): Kysely<DatabaseSchema> => {
    const db = opened.get(nth) ?? open(file)
    opened.set(nth, db)
    return db
  }
  return {
    answer: ({ ledger, question }, signal) => answerTo(connectionTo(ledger), question, signal),
    close: async ({ nth }) => {
      const db = opened.get(nth)
      opened.delete(nth)
      await db?.destroy()
    },
  }
}

function open(file: string): Kysely<DatabaseSchema> {
  const connection = new SQLite(file, { readonly: true, fileMustExist: true })
  // The schema is data too: what somebody planted in it must not call functions with side effects.
  connection.pragma('trusted_schema = OFF')
  return new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
}
