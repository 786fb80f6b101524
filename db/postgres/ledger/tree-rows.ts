import { setTimeout as wait } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import type { CountingDialect } from '../../ledger/counts/dialect.ts'
import type { RowCounts } from '../../ledger/counts/row-counts.ts'
import { groupSpends, removeSpends } from '../../ledger/counts/spend-store.ts'
import { countedPlace, countPortion, countWithin, keepCounts, lastPlace } from '../../ledger/counts/store.ts'
import { SHOWN_COLUMNS } from '../../ledger/record/leaf.ts'
import {
  MAX_ROWS_PER_REQUEST,
  type PlacedLeaf,
  type PlacedRow,
  type TreeRows,
} from '../../ledger/tree/rows.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { AUTHORITY_HOLDERS } from './locks.ts'

const DIALECT: CountingDialect = {
  place: 'place',
  members: (json) => sql`json_array_elements(${json}::json) as members(value)`,
  ofDetail: (member) => sql`(detail::json -> ${sql.lit(member)})::text`,
}

/** The rows of all streams, by their places: none is counted while one may still come in before it. */
export function postgresRowCounts(db: Kysely<DatabaseSchema>): RowCounts {
  const settled = new SettledPlace(db)
  return {
    counted: () => countedPlace(db),
    portion: async (after, most) => {
      const until = await settled.place(after)
      return until > after
        ? countPortion(db, DIALECT, { after, until, most })
        : { counts: [], spends: [], place: after }
    },
    keep: (from, portion) => keepCounts(db, DIALECT, from, portion),
    within: (window) => countWithin(db, DIALECT, window),
    spends: (question) => groupSpends(db, DIALECT, question),
    removeSpends: (before) => removeSpends(db, before),
    last: () => lastPlace(db, DIALECT),
  }
}

type TreeRowsDatabase = Kysely<DatabaseSchema>

export const postgresTreeRows = (db: TreeRowsDatabase): TreeRows => {
  const settled = new SettledPlace(db)
  return {
    hashes: async (after, most) => {
      const until = await settled.place(after)
      return until > after ? leafHashes(db, after, until, most) : NOTHING_AFTER(after)
    },
    ofRequest: async (requestId) => {
      const { rows } = await sql<PlacedLeaf>`
        select place, stream, seq, principal_id, leaf from audit_log
        where request_id = ${requestId} order by place limit ${sql.lit(MAX_ROWS_PER_REQUEST)}`.execute(db)
      return rows
    },
    placeOf: async ({ stream, seq }) => {
      const { rows } = await sql<{ place: number }>`
        select place from audit_rows where stream = ${stream} and seq = ${seq}`.execute(db)
      return rows[0]?.place ?? null
    },
    between: async (after, before) => {
      const { rows } = await sql<{ count: number }>`
        select count(*) as count from audit_rows where place > ${after} and place < ${before}`.execute(db)
      return rows[0]?.count ?? 0
    },
    leaves: async (after, skip, most) => {
      const { rows } = await sql<{ leaf: string }>`
        select leaf from audit_log where place > ${after} order by place offset ${skip} limit ${most}`.execute(
        db,
      )
      return rows.map(({ leaf }) => leaf)
    },
    stored: async (after, most) => {
      const columns = sql.join([...SHOWN_COLUMNS, 'leaf', 'place'].map((name) => sql.ref(name)))
      const { rows } = await sql<PlacedRow>`
        select ${columns} from audit_log where place > ${after} order by place limit ${most}`.execute(db)
      return rows
    },
    firstSince: async (instant) => {
      const { rows } = await sql<{ place: number | null }>`
        select min(place) as place from audit_rows where recorded_at >= ${instant}`.execute(db)
      return rows[0]?.place ?? null
    },
  }
}

const NOTHING_AFTER = (place: number) => ({ hashes: Buffer.alloc(0), place })

// Hashed where the rows are: 32 bytes of each come over.
async function leafHashes(db: TreeRowsDatabase, after: number, until: number, most: number) {
  const { rows } = await sql<{ place: number | null; hashes: Buffer | null }>`
    select max(place) as place, string_agg(sha256('\\x00'::bytea || convert_to(leaf, 'UTF8')), '' order by place) as hashes
    from (select place, leaf from audit_log where place > ${after} and place <= ${until}
      order by place limit ${most}) as portion`.execute(db)
  const [{ place, hashes } = { place: null, hashes: null }] = rows
  return { hashes: hashes ?? Buffer.alloc(0), place: place ?? after }
}

/** The time between two looks at transactions that may still add a row in between. ms. */
const LOOK_MS = 10
const LOOKS = 10

/**
 * The place up to which rows are settled: a transaction with an earlier place may commit later. Once every
 * holder of the authority lock (locks.ts) seen after a row has let go of it, none can come before that row.
 */
export class SettledPlace {
  readonly #db: TreeRowsDatabase
  /** The transactions that must end before the place counts. */
  #awaited: { readonly place: number; readonly holders: ReadonlySet<string> } | null = null

  constructor(db: TreeRowsDatabase) {
    this.#db = db
  }

  async place(after: number): Promise<number> {
    if (this.#awaited === null || this.#awaited.place <= after) {
      const place = await this.#last()
      if (place <= after) return after
      this.#awaited = { place, holders: await this.#holders() }
    }
    const { place, holders } = this.#awaited
    for (let look = 0; look < LOOKS; look += 1) {
      const still = await this.#holders()
      if (holders.isDisjointFrom(still)) {
        this.#awaited = null
        return place
      }
      await wait(LOOK_MS)
    }
    return after
  }

  async #last(): Promise<number> {
    const { rows } = await sql<{ place: number | null }>`select max(place) as place from audit_rows`.execute(
      this.#db,
    )
    return rows[0]?.place ?? 0
  }

  async #holders(): Promise<ReadonlySet<string>> {
    const { rows } = await sql<{ holder: string }>`${sql.raw(AUTHORITY_HOLDERS)}`.execute(this.#db)
    return new Set(rows.map(({ holder }) => holder))
  }
}
