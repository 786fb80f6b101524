import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { PRINCIPAL_TABLES } from '../principals/tables.ts'
import type { PrincipalType } from '../schema.ts'
import { allPages, type PagePause } from '../support/pages.ts'

export interface BoundPrincipal {
  readonly principal_type: PrincipalType
  readonly principal_id: string
  /** The name that it is shown as; its own if it has none; null of a principal that is not there. */
  readonly shown_as: string | null
}

type BoundPrincipalKey = Pick<BoundPrincipal, 'principal_type' | 'principal_id'>

/** Finds principals after `after` by type and id: at most `most` of those that are `wanted`. */
export function findBoundPrincipals(
  db: Database,
  {
    after,
    most,
    wanted,
  }: {
    readonly after?: BoundPrincipalKey | undefined
    readonly most: number
    readonly wanted?: (one: BoundPrincipal) => boolean
  },
  pause: PagePause,
): Promise<BoundPrincipal[]> {
  const read = async (last: BoundPrincipalKey | undefined, limit: number): Promise<BoundPrincipal[]> =>
    withPrincipalNames(
      db,
      await boundQuery(db, last ?? after)
        .limit(limit)
        .execute(),
    )
  return allPages(read, pause, most, wanted)
}

export function boundQuery({ kysely }: Database, after?: BoundPrincipalKey) {
  const all = kysely
    .selectFrom('mcp_bindings')
    .select(['principal_type', 'principal_id'])
    .groupBy(['principal_type', 'principal_id'])
    .orderBy('principal_type')
    .orderBy('principal_id')
  if (!after) return all
  const { principal_type: type, principal_id: id } = after
  return all.where(sql<boolean>`(principal_type, principal_id) > (${type}, ${id})`)
}

async function withPrincipalNames(
  { kysely }: Database,
  keys: readonly BoundPrincipalKey[],
): Promise<BoundPrincipal[]> {
  const names = new Map<string, string>()
  for (const [type, some] of Map.groupBy(keys, ({ principal_type }) => principal_type)) {
    const { table, id } = PRINCIPAL_TABLES[type]
    const key = sql.ref<string>(`p.${id}`)
    const rows = await kysely
      .selectFrom(kysely.dynamic.table(table).as('p'))
      .select([key.as('id'), 'p.name', 'p.display_name'])
      .where(
        key,
        'in',
        some.map(({ principal_id }) => principal_id),
      )
      .execute()
    for (const row of rows) names.set(`${type} ${row.id}`, row.display_name || row.name)
  }
  return keys.map((one) => ({
    ...one,
    shown_as: names.get(`${one.principal_type} ${one.principal_id}`) ?? null,
  }))
}

export function bindingsOfPrincipals({ kysely }: Database, type: PrincipalType, ids: readonly string[]) {
  return kysely
    .selectFrom('mcp_bindings')
    .select(['binding_id', 'principal_id', 'resource_id'])
    .where('principal_type', '=', type)
    .where('principal_id', 'in', ids)
    .execute()
}

/** Counts the principals bound to each resource, by its id; none has no entry. Reads an index alone. */
export async function countBindings({ kysely }: Database): Promise<ReadonlyMap<string, number>> {
  const rows = await kysely
    .selectFrom('mcp_bindings')
    .select(({ fn }) => ['resource_id', fn.countAll().as('total')] as const)
    .groupBy('resource_id')
    .execute()
  return new Map(rows.map(({ resource_id: id, total }) => [id, Number(total)]))
}
