import SQLite from 'better-sqlite3'
import type { Test } from 'tap'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import { writingClient } from '../../../db/postgres/connection.ts'
import type { LedgerStatement, RowAssertion } from '../../../db/support/statement.ts'
import { databaseUrl, ENGINE } from './engine.ts'

/** What a connection says of a row whose key is taken, and of one that refers to none, on this run's engine. */
export const TAKEN = ENGINE === 'sqlite' ? /^SQLITE_CONSTRAINT_(UNIQUE|PRIMARYKEY)$/ : '23505'
export const REFERS_TO_NONE = ENGINE === 'sqlite' ? 'SQLITE_CONSTRAINT_FOREIGNKEY' : '23503'

/** A connection that writes, as the ledger's does at run time. One unit at a time. */
interface Writing {
  /** Runs one unit in one transaction; says how many rows each statement changed. */
  readonly run: (...statements: readonly LedgerStatement[]) => Promise<readonly number[]>
  /** Whether an assertion finds a row. */
  readonly holds: (assertion: RowAssertion) => Promise<boolean>
}

/** A database, and a second connection that writes to it. */
export interface Opened extends Writing {
  readonly db: Database
}

/** An empty database on this run's engine. Closed with its test. */
export async function opened(t: Test): Promise<Opened> {
  const url = await databaseUrl(t.testdir())
  const db = await openDatabase(url)
  t.teardown(db.close)
  return { db, ...(db.file === null ? await toPostgres(t, url) : toFile(t, db.file)) }
}

function toFile(t: Test, file: string): Writing {
  const writer = new SQLite(file, { timeout: 0 })
  t.teardown(() => writer.close())
  const unit = writer.transaction((statements: readonly LedgerStatement[]) =>
    statements.map(({ sql, parameters }) => writer.prepare(sql).run(...parameters).changes),
  )
  return {
    run: async (...statements) => unit(statements),
    holds: async ({ sql, parameters }) => writer.prepare(sql).get(...parameters) !== undefined,
  }
}

async function toPostgres(t: Test, url: string): Promise<Writing> {
  const client = writingClient(url, 0)
  await client.connect()
  t.teardown(() => client.end())
  return {
    run: async (...statements) => {
      await client.query('begin')
      try {
        const changes: number[] = []
        for (const { sql, parameters } of statements)
          changes.push((await client.query(sql, [...parameters])).rowCount ?? 0)
        await client.query('commit')
        return changes
      } catch (error) {
        await client.query('rollback')
        throw error
      }
    },
    holds: async ({ sql, parameters }) => (await client.query(sql, [...parameters])).rows.length > 0,
  }
}

/** A step of how SQLite means to answer a question. */
export interface Step {
  readonly parent: number
  readonly detail: string
}

/** How SQLite means to answer a question to the database in a file. */
export function planOf(file: string | null, sql: string, ...parameters: readonly unknown[]): readonly Step[] {
  const connection = new SQLite(file ?? '', { readonly: true, fileMustExist: true })
  try {
    return connection.prepare<unknown[], Step>(`explain query plan ${sql}`).all(...parameters)
  } finally {
    connection.close()
  }
}
