import { Kysely, PostgresDialect, type PostgresPool, type PostgresPoolClient } from 'kysely'
import { DatabaseError, type Pool } from 'pg'
import type { DatabaseSchema } from '../schema.ts'
import { messageOf } from '../support/error-message.ts'
import { DatabaseUnavailable } from '../support/unavailable.ts'
import { QUERY_TIMEOUT_MS, readingPool } from './connection.ts'

/** The connections by which a database is read, and what asks on them. Whoever opens it destroys `kysely`. */
export interface ReadConnections {
  readonly pool: Pool
  readonly kysely: Kysely<DatabaseSchema>
}

/** Opens no connection yet. One that breaks while nobody uses it is opened anew by the next question. */
export function openReadConnections(url: string): ReadConnections {
  const pool = readingPool(url, () => {})
  return {
    pool,
    kysely: new Kysely<DatabaseSchema>({ dialect: new PostgresDialect({ pool: kyselyPool(pool) }) }),
  }
}

/** A pool as Kysely takes it, which tells a database that is away from a question that is wrong. */
function kyselyPool(pool: Pool): PostgresPool {
  return {
    connect: async () => {
      const until = performance.now() + QUERY_TIMEOUT_MS
      const connecting = pool.connect()
      const client = await withinDeadline(connecting, until).catch((error: unknown) => {
        // Nobody waits for it any more.
        connecting.then((late) => late.release()).catch(() => {})
        return rethrowQueryError(error)
      })
      let broken = false
      const query = (text: string, values: readonly unknown[] = []): Promise<unknown> =>
        holdsNul(values)
          ? Promise.resolve({ command: 'SELECT', rowCount: 0, rows: [] })
          : withinDeadline(client.query(text, [...values]), until).catch((error: unknown) => {
              broken = !(error instanceof DatabaseError)
              rethrowQueryError(error)
            })
      // What it was asked may still run there: whoever comes next must not wait behind it.
      return { query, release: () => client.release(broken) } as unknown as PostgresPoolClient
    },
    end: () => pool.end(),
    options: pool.options,
  }
}

/**
 * Waits for an answer until an instant, in ms of `performance.now()`: for a connection that is free, and for what is asked
 * on it. Each has a limit of its own too, and a caller would wait for one after the other.
 */
export async function withinDeadline<Answer>(asked: Promise<Answer>, until: number): Promise<Answer> {
  const late = Promise.withResolvers<never>()
  const timer = setTimeout(
    () => late.reject(new Error('it did not answer in time')),
    until - performance.now(),
  )
  try {
    return await Promise.race([asked, late.promise])
  } finally {
    clearTimeout(timer)
  }
}

/**
 * Whether a question with these parameters has no answer: no text of a PostgreSQL database holds U+0000, and a
 * question that names one would be a fault, where on SQLite it finds nothing.
 */
export const holdsNul = (values: readonly unknown[]): boolean =>
  values.some((value) => typeof value === 'string' && value.includes('\0'))

/** Throws what a question to the database has failed with, as {@link DatabaseUnavailable} where it is away. */
export function rethrowQueryError(error: unknown): never {
  // What a server answers is the question's fault, unless it says that it cannot serve now, or ends the connection.
  const isAnswer = error instanceof DatabaseError && error.severity !== 'FATAL'
  if (isAnswer && !AWAY.test(error.code ?? '')) throw error
  throw new DatabaseUnavailable(`the database is away: ${messageOf(error)}`, { cause: error })
}

// PostgreSQL's appendix A: connections, resources, a question that took too long, a server that stops or starts.
const AWAY = /^(08|53|57014|57P)/
