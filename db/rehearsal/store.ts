import type { Selectable } from 'kysely'
import type { Database } from '../database.ts'
import type { Schema } from '../schema.ts'
import { type Statement, statementOf, timestamp } from '../statement.ts'

/** A rehearsal as it is kept. Timestamps are RFC 3339. */
export type StoredRehearsal = Selectable<Schema['rehearsals']>

export const findRehearsal = ({ kysely }: Database, id: string): Promise<StoredRehearsal | undefined> =>
  kysely.selectFrom('rehearsals').selectAll().where('rehearsal_id', '=', id).executeTakeFirst()

/** Stores one. */
export const insertRehearsal = ({ kysely }: Database, rehearsal: StoredRehearsal): Statement =>
  statementOf(kysely.insertInto('rehearsals').values(rehearsal).compile(), 1)

/** Forgets those that are older than an instant. `before`: ms since the epoch. */
export const deleteRehearsals = ({ kysely }: Database, before: number): Statement =>
  statementOf(kysely.deleteFrom('rehearsals').where('created_at', '<', timestamp(before)).compile())
