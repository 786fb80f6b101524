import { type Selectable, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema, PrincipalType } from '../schema.ts'
import { allPages, type PagePause } from '../support/pages.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'
import { storedCapabilities } from './pins.ts'
import { type PrincipalLabels, storedLabels } from './read.ts'
import { PRINCIPAL_TABLES } from './tables.ts'

/** A set of capabilities by a name: a template, which decides nothing by itself. */
export interface CapabilitySet extends Omit<Selectable<DatabaseSchema['capability_sets']>, 'capabilities'> {
  readonly capabilities: readonly string[]
}

/** Reads all sets: there are few. */
export async function listCapabilitySets({ kysely }: Database): Promise<readonly CapabilitySet[]> {
  const rows = await kysely.selectFrom('capability_sets').selectAll().orderBy('name').execute()
  return rows.map((row) => ({ ...row, capabilities: storedCapabilities(row.capabilities) }))
}

interface CapabilitySetChange {
  readonly name: string
  readonly at: number
  readonly by: string
}

export function insertCapabilitySet(
  { kysely }: Database,
  { name, capabilities, at, by }: CapabilitySetChange & { readonly capabilities: readonly string[] },
): LedgerStatement {
  const columns = { created_at: timestamp(at), updated_at: timestamp(at), created_by: by, changed_by: by }
  return statementOf(
    kysely
      .insertInto('capability_sets')
      .values({ name, capabilities: JSON.stringify(capabilities), ...columns })
      .compile(),
    1,
  )
}

/** Replaces the capabilities of a set, if it is as it was read. */
export function updateCapabilitySet(
  { kysely }: Database,
  {
    name,
    capabilities,
    revision,
    at,
    by,
  }: CapabilitySetChange & { readonly capabilities: readonly string[]; readonly revision: number },
): LedgerStatement {
  return statementOf(
    kysely
      .updateTable('capability_sets')
      .set((row) => ({
        capabilities: JSON.stringify(capabilities),
        revision: row('revision', '+', 1),
        updated_at: timestamp(at),
        changed_by: by,
      }))
      .where('name', '=', name)
      .where('revision', '=', revision)
      .compile(),
    1,
  )
}

/** Deletes a set, if it is as it was read; those it was given to keep what they hold, and have no set. */
export function deleteCapabilitySet(
  { kysely }: Database,
  { name, revision, at, by }: CapabilitySetChange & { readonly revision: number },
): readonly LedgerStatement[] {
  const released = Object.values(PRINCIPAL_TABLES).map(({ table }) =>
    statementOf(
      kysely
        .updateTable(table)
        .set((row) => ({
          capability_set: null,
          revision: row('revision', '+', 1),
          updated_at: timestamp(at),
          changed_by: by,
        }))
        .where('capability_set', '=', name)
        .compile(),
    ),
  )
  const deleted = kysely
    .deleteFrom('capability_sets')
    .where('name', '=', name)
    .where('revision', '=', revision)
    .compile()
  return [statementOf(deleted, 1), ...released]
}

/** A principal's labels, the set that it was given last, and what it holds. */
export interface AttachedToPrincipal {
  readonly type: PrincipalType
  readonly labels: PrincipalLabels
  readonly set: string | null
  readonly capabilities: readonly string[]
}

/** Calls `see` for each principal with a label or a set. */
export async function walkAttached(
  { kysely }: Database,
  pause: PagePause,
  see: (attached: AttachedToPrincipal) => void,
): Promise<void> {
  for (const type of ['agent', 'user', 'workload', 'operator'] as const) {
    const { table, id: column } = PRINCIPAL_TABLES[type]
    const id = sql.ref<string>(`p.${column}`)
    const read = (last: { readonly id: string } | undefined, limit: number) => {
      const query = kysely
        .selectFrom(kysely.dynamic.table(table).as('p'))
        .select([id.as('id'), 'p.labels', 'p.capability_set', 'p.capabilities'])
        .where((row) => row.or([row('p.labels', '<>', '{}'), row('p.capability_set', 'is not', null)]))
        .orderBy(id)
        .limit(limit)
      return (last ? query.where(id, '>', last.id) : query).execute()
    }
    // None is kept: there may be very many.
    await allPages(read, pause, undefined, (row) => {
      see({
        type,
        labels: storedLabels(row.labels),
        set: row.capability_set,
        capabilities: storedCapabilities(row.capabilities),
      })
      return false
    })
  }
}
