import type SQLite from 'better-sqlite3'
import { FREQUENT } from '../../audit/frequent.ts'
import type { WalkedPart, Wanted } from '../../audit/rehearsal/task.ts'

/** Places in the chain that are read at once: a read that lasted would keep the write-ahead log from being moved. */
const SPAN = 1_000

// As it stands in the partial index (db/sqlite/ledger/form/table.ts).
const RARE = `action not in (${FREQUENT.map((action) => `'${action}'`).join(', ')})`
// The status first: it tells most outcomes from the rest, and is the cheaper question.
const DECISIONS = `status in ('allowed', 'denied') and recorded_at >= ? and recorded_at < ?`

/** Walks over the rows that a rehearsal needs, up to those that are there when it begins. */
export function* walk(db: SQLite.Database, wanted: Wanted): Generator<WalkedPart> {
  const last = db.prepare<[], number>('select coalesce(max(seq), 0) from audit_rows').pluck().get() ?? 0
  yield* wanted.principals === null
    ? walkOverAll(db, wanted, last)
    : walkAbout(db, wanted, wanted.principals, last)
}

function* walkOverAll(db: SQLite.Database, { since, until }: Wanted, last: number): Generator<WalkedPart> {
  const select = db
    .prepare<[number, number, string, string], string>(
      `select leaf from audit_rows where seq > ? and seq <= ? and ((${DECISIONS}) or ${RARE}) order by seq`,
    )
    .pluck()
  for (let from = 0; from < last; from += SPAN) {
    const to = Math.min(from + SPAN, last)
    yield { leaves: select.all(from, to, since, until), rows: to, of: last }
  }
}

/** By the indexes: the changes, whose actions have a dot and are rare, and what a few principals have called. */
function* walkAbout(
  db: SQLite.Database,
  { since, until }: Wanted,
  principals: readonly string[],
  last: number,
): Generator<WalkedPart> {
  const changes = db
    .prepare<[], number>(
      `select seq from audit_rows indexed by audit_rows_action where ${RARE} and action like '%.%'`,
    )
    .pluck()
  const about = db
    .prepare<[string, string, string], number>(
      `select seq from audit_rows indexed by audit_rows_principal where principal_id = ? and ${DECISIONS}`,
    )
    .pluck()
  const found = new Set([...changes.all(), ...principals.flatMap((name) => about.all(name, since, until))])
  const places = [...found].filter((seq) => seq <= last).toSorted((a, b) => a - b)
  const select = db.prepare<[number], string>('select leaf from audit_rows where seq = ?').pluck()
  for (let from = 0; from < places.length; from += SPAN) {
    const to = Math.min(from + SPAN, places.length)
    const leaves = places.slice(from, to).flatMap((seq) => select.get(seq) ?? [])
    yield { leaves, rows: to, of: places.length }
  }
}
