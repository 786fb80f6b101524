import { type Kysely, sql } from 'kysely'
import { RARE_ACTION } from '../../audit/find.ts'
import type { WalkedPart, Wanted } from '../../audit/rehearsal/task.ts'
import type { Schema } from '../../schema.ts'

/** Rows that are asked for at once. */
const STEP = 2_000

interface Placed {
  readonly place: number
  readonly leaf: string
}

const leavesOf = (rows: readonly Pick<Placed, 'leaf'>[]): readonly string[] => rows.map(({ leaf }) => leaf)

/**
 * Walks over the rows of all streams that a rehearsal needs, in the order of their places (docs/ledger.md#places), up to
 * those that are there when it begins.
 */
export async function* walk(db: Kysely<Schema>, wanted: Wanted): AsyncGenerator<WalkedPart> {
  const found = await sql<{ last: number }>`select coalesce(max(place), 0) as last from audit_rows`.execute(
    db,
  )
  const last = Number(found.rows[0]?.last ?? 0)
  yield* wanted.principals === null
    ? walkOverAll(db, wanted, last)
    : walkAbout(db, wanted, wanted.principals, last)
}

const decisionsOf = ({ since, until }: Wanted) =>
  sql`status in ('allowed', 'denied') and recorded_at >= ${since} and recorded_at < ${until}`

async function* walkOverAll(db: Kysely<Schema>, wanted: Wanted, last: number): AsyncGenerator<WalkedPart> {
  let page: readonly Placed[] = []
  let place = 0
  do {
    const { rows } = await sql<Placed>`
      select place, leaf from audit_rows
      where place > ${place} and place <= ${last} and (${RARE_ACTION} or (${decisionsOf(wanted)}))
      order by place limit ${sql.lit(STEP)}`.execute(db)
    page = rows
    place = Number(page.at(-1)?.place ?? last)
    yield { leaves: leavesOf(page), rows: place, of: last }
  } while (page.length === STEP)
}

/** By the indexes: the changes, whose actions have a dot and are rare, and what a few principals have called. */
async function* walkAbout(
  db: Kysely<Schema>,
  wanted: Wanted,
  principals: readonly string[],
  last: number,
): AsyncGenerator<WalkedPart> {
  const { rows: found } = await sql<{ place: number }>`
    select place from audit_rows where ${RARE_ACTION} and action like '%.%' and place <= ${last}
    union
    select place from audit_rows
    where principal_id = any(${principals}) and ${decisionsOf(wanted)} and place <= ${last}
    order by place`.execute(db)
  for (let from = 0; from < found.length; from += STEP) {
    const places = found.slice(from, from + STEP).map(({ place }) => place)
    const { rows } = await sql<Pick<Placed, 'leaf'>>`
      select leaf from audit_rows where place = any(${places}) order by place`.execute(db)
    yield { leaves: leavesOf(rows), rows: from + places.length, of: found.length }
  }
}
