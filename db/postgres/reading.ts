import { Kysely, PostgresDialect, type PostgresPool, type PostgresPoolClient } from 'kysely'
import { DatabaseError, type Pool } from 'pg'
import type { DatabaseSchema } from '../schema.ts'
import { messageOf } from '../support/error-message.ts'
import { DatabaseUnavailable } from '../support/unavailable.ts'
import { QUERY_TIMEOUT_MS, readingPool } from './connection.ts'

export interface ReadConnections {
  readonly pool: Pool
  readonly kysely: Kysely<DatabaseSchema>
}

export const openReadConnections = (url: string): ReadConnections => {
  const pool = readingPool(url, () => {})
  return connectionsOf(pool, () => {
    const until = performance.now() + QUERY_TIMEOUT_MS
    return () => until
  })
}

/** The time that a question about all rows may take. ms. */
const LONG_QUESTION_MS = 600_000

/** The same for who reads a whole ledger in one transaction: each of its questions has its own time. */
export const openLongReads = (url: string): ReadConnections =>
  connectionsOf(
    readingPool(url, () => {}, LONG_QUESTION_MS),
    () => () => performance.now() + LONG_QUESTION_MS,
  )

/** Says for a connection until when a question that is asked now must be answered. */
type Deadlines = () => () => number

const connectionsOf = (pool: Pool, deadlines: Deadlines): ReadConnections => ({
  pool,
  kysely: new Kysely<DatabaseSchema>({ dialect: new PostgresDialect({ pool: kyselyPool(pool, deadlines) }) }),
})

/** A pool as Kysely takes it, which tells a database that is away from a question that is wrong. */
function kyselyPool(pool: Pool, deadlines: Deadlines): PostgresPool {
  return {
    connect: async () => {
      const until = deadlines()
      const connecting = pool.connect()
      const client = await withinDeadline(connecting, until()).catch((error: unknown) => {
        // Nobody waits for it any more.
        connecting.then((late) => late.release()).catch(() => {})
        return rethrowQueryError(error)
      })
      let broken = false
      const query = (text: string, values: readonly unknown[] = []): Promise<unknown> =>
        holdsNul(values)
          ? Promise.resolve({ command: 'SELECT', rowCount: 0, rows: [] })
          : withinDeadline(client.query(text, [...values]), until()).catch((error: unknown) => {
              broken = !(error instanceof DatabaseError)
              rethrowQueryError(error)
            })
      // Its question may still run there: the next caller must not wait for it.
      return { query, release: () => client.release(broken) } as unknown as PostgresPoolClient
    },
    end: () => pool.end(),
    options: pool.options,
  }
}

/** Waits until an instant, in ms of `performance.now()`, for a connection and the answer together. */
export async function withinDeadline<Answer>(asked: Promise<Answer>, until: number): Promise<Answer> {
  const late = Promise.withResolvers<never>()
  // Where the loop was late, an answer that has come by then is read first.
  const end = (): void => late.reject(new Error('it did not answer in time'))
  const timer = setTimeout(() => setImmediate(end), until - performance.now())
  try {
    return await Promise.race([asked, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

/** True if a parameter holds U+0000: no text in PostgreSQL does, so nothing is found, as on SQLite. */
export const holdsNul = (values: readonly unknown[]): boolean =>
  values.some((value) => typeof value === 'string' && value.includes('\0'))

/** Throws a question's error, as {@link DatabaseUnavailable} if the database is away. */
export function rethrowQueryError(error: unknown): never {
  // An error in an answer is the question's fault, unless the server cannot serve now, or ends the
  // connection.
  const isAnswer = error instanceof DatabaseError && error.severity !== 'FATAL'
  if (isAnswer && !SERVER_UNAVAILABLE_CODES.test(error.code ?? '')) throw error
  if (error instanceof DatabaseUnavailable) throw error
  throw new DatabaseUnavailable(`the database is away: ${messageOf(error)}`, { cause: error })
}

// PostgreSQL's appendix A: connections, resources, a question that took too long, a server that stops or
// starts.
const SERVER_UNAVAILABLE_CODES = /^(08|53|57014|57P)/
