// The thread that reads the ledger for operators: SQLite answers at once, and a question may take seconds
// (docs/threats.md#a7).
import { parentPort, workerData } from 'node:worker_threads'
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { type AnswerPieces, answerTo } from '../../ledger/read/reader.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { messageOf } from '../../support/error-message.ts'
import type { FromReader, ReaderOptions, ToReader } from './messages.ts'

const port = parentPort
if (!port) throw new Error('db/sqlite/reader/reader.ts runs as a worker thread only')

// Proven by db/sqlite/reader/thread.ts, which starts this thread and nothing else.
const { file } = workerData as ReaderOptions
const connection = new SQLite(file, { readonly: true, fileMustExist: true })
// The schema is data too: what somebody planted in it must not call functions with side effects.
connection.pragma('trusted_schema = OFF')
const db = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })

/** The answers under way, by the id of their question. Each gives way to the others between two reads. */
const answers = new Map<number, { readonly pieces: AnswerPieces; readonly gone: AbortController }>()

port.on('message', (message: ToReader) => {
  const { kind, id } = message
  if (kind === 'end') {
    answers.get(id)?.gone.abort()
    answers.delete(id)
    return
  }
  if (kind === 'ask') {
    const gone = new AbortController()
    answers.set(id, { pieces: answerTo(db, message.question, gone.signal), gone })
  }
  void next(id)
})

async function next(id: number): Promise<void> {
  try {
    const piece = await answers.get(id)?.pieces.next()
    if (!piece || !answers.has(id)) return
    if (!piece.done) return send({ kind: 'piece', id, bytes: piece.value }, [piece.value.buffer])
    answers.delete(id)
    send({ kind: 'done', id })
  } catch (error) {
    if (answers.delete(id)) send({ kind: 'failed', id, message: messageOf(error) })
  }
}

function send(message: FromReader, handedOver: readonly ArrayBuffer[] = []): void {
  port?.postMessage(message, handedOver)
}
