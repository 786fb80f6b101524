import type { PostgresPool, PostgresPoolClient } from 'kysely'
import { DatabaseError, type Pool } from 'pg'
import { messageOf } from '../error-message.ts'
import { DatabaseUnavailable } from '../unavailable.ts'

/** A pool as Kysely takes it, which tells a database that is away from a question that is wrong. */
export function kyselyPool(pool: Pool): PostgresPool {
  return {
    connect: async () => {
      const client = await pool.connect().catch(unavailable)
      const query = (...asked: Parameters<typeof client.query>): Promise<unknown> =>
        (client.query(...asked) as unknown as Promise<unknown>).catch(unavailable)
      return { query, release: () => client.release() } as unknown as PostgresPoolClient
    },
    end: () => pool.end(),
    options: pool.options,
  }
}

/** Throws what a question to the database has failed with, as {@link DatabaseUnavailable} where it is away. */
export function unavailable(error: unknown): never {
  // What a server answers is the question's fault, unless it says that it cannot serve now.
  if (error instanceof DatabaseError && !AWAY.test(error.code ?? '')) throw error
  throw new DatabaseUnavailable(`the database is away: ${messageOf(error)}`, { cause: error })
}

// PostgreSQL's appendix A: connections, resources, a question that took too long, a server that stops or starts.
const AWAY = /^(08|53|57014|57P)/
