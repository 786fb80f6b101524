import { randomBytes } from 'node:crypto'
import type { Selectable } from 'kysely'
import type { Database } from '../database.ts'
import { nextRules } from '../limits/store.ts'
import type { DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'
import { type CallStop, stopScopeOf } from './stop.ts'

/** The stops that there may be at once. */
export const MAX_STOPS = 100

/** A stop with its author and times. RFC 3339. */
export interface StopRecord extends CallStop {
  readonly begun_at: string
  readonly begun_by: string
  /** When it ends by itself; null: it does not. */
  readonly until: string | null
}

export const newStopId = (): string => `stp_${randomBytes(8).toString('hex')}`

function recordOf({ stop_id: id, scope, ...stop }: Selectable<DatabaseSchema['stops']>): StopRecord {
  // Only insertStop writes it. A scope that somebody has spoiled stops everything: it must not stop nothing.
  return { id, scope: readScope(scope), ...stop }
}

function readScope(text: string): CallStop['scope'] {
  try {
    return stopScopeOf(JSON.parse(text)) ?? 'all'
  } catch {
    return 'all'
  }
}

/** Reads the stops that have not ended, the oldest first. */
export async function listStops({ kysely }: Pick<Database, 'kysely'>): Promise<readonly StopRecord[]> {
  const rows = await kysely
    .selectFrom('stops')
    .selectAll()
    .orderBy('begun_at')
    .orderBy('stop_id')
    .limit(MAX_STOPS)
    .execute()
  return rows.map(recordOf)
}

export async function findStop({ kysely }: Pick<Database, 'kysely'>, id: string): Promise<StopRecord | null> {
  const row = await kysely.selectFrom('stops').selectAll().where('stop_id', '=', id).executeTakeFirst()
  return row ? recordOf(row) : null
}

/** Begins a stop. Does NOT count how many there are. */
export function insertStop(
  database: Pick<Database, 'kysely'>,
  { id, scope, ...stop }: StopRecord,
): readonly LedgerStatement[] {
  const query = database.kysely
    .insertInto('stops')
    .values({ stop_id: id, scope: JSON.stringify(scope), ...stop })
  return [statementOf(query.compile(), 1), nextRules(database)]
}

/** Ends a stop, if it has not ended. */
export function deleteStop(database: Pick<Database, 'kysely'>, id: string): readonly LedgerStatement[] {
  const query = database.kysely.deleteFrom('stops').where('stop_id', '=', id)
  return [statementOf(query.compile(), 1), nextRules(database)]
}
