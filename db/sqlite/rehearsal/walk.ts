import type SQLite from 'better-sqlite3'
import {
  CHANGING_ROWS_SQL,
  changingRowsSqlFor,
  RARE_ACTION_SQL,
  SET_CHANGES_SQL,
  subjectText,
} from '../../ledger/rehearsal/changing-rows.ts'
import type { WalkedPart, WalkScope } from '../../ledger/rehearsal/rehearse.ts'
import { LEAF_OF_ROW } from '../ledger/form/columns.ts'

/** Places read at once: a long read would keep the write-ahead log from being moved. */
const SPAN = 1_000
/** Pages kept while all are read once: those that fit the processor's cache. */
const PAGES_IN_TURN = 64
/** Memory for pages that are come by again, here and there in the file. KiB. */
const PAGES_KIB = 65_536

// The status first: it tells most outcomes from the rest, and is the cheaper question.
const IN_WINDOW = 'recorded_at >= ? and recorded_at < ?'
const DECISIONS = `status in ('allowed', 'denied') and ${IN_WINDOW}`

/** True of a row whose leaf has a text: in its detail. */
const HOLDS = `instr(iif(leaf = '', detail, leaf), ?) > 0`

/**
 * Walks over the rows after a place that a rehearsal needs, up to those there at the start. Returns the last
 * place.
 */
export function* walkSqliteLedger(
  db: SQLite.Database,
  wanted: WalkScope,
  after = 0,
): Generator<WalkedPart, number> {
  const last = db.prepare<[], number>('select coalesce(max(seq), 0) from audit_rows').pluck().get() ?? 0
  yield* wanted.principals === null
    ? walkOverAll(db, wanted, [after, last])
    : walkAbout(db, wanted, wanted.principals, [after, last])
  return last
}

function* walkOverAll(
  db: SQLite.Database,
  wanted: WalkScope,
  [after, last]: PlaceRange,
): Generator<WalkedPart> {
  db.pragma(`cache_size = ${PAGES_IN_TURN}`)
  const [from, end] = boundsOf(db, wanted, last)
  const first = Math.max(from, after + 1)
  for (const { leaves } of walkTo(db, changesBetween(db, after, first))) yield { leaves, rows: 0, of: end }
  const select = db
    .prepare<[number, number, string, string], string>(
      `select ${LEAF_OF_ROW} from audit_rows where seq >= ? and seq < ? and ((${wanted.outcomes ? IN_WINDOW : DECISIONS}) or ${RARE_ACTION_SQL}) order by seq`,
    )
    .pluck()
  for (let at = first; at <= end; at += SPAN) {
    const to = Math.min(at + SPAN, end + 1)
    yield { leaves: select.all(at, to, wanted.since, wanted.until), rows: to - 1, of: end }
  }
}

/** The places between which all rows of a window lie: rows may be written out of order. */
function boundsOf(db: SQLite.Database, { since, until }: WalkScope, last: number): readonly [number, number] {
  const others = db
    .prepare<[string, string], number>(
      'select exists (select 1 from audit_rows where recorded_at < ?) or exists (select 1 from audit_rows where recorded_at >= ?)',
    )
    .pluck()
  if (others.get(since, until) === 0) return [1, last]
  const found = db
    .prepare<[string, string], { first: number | null; end: number | null }>(
      `select min(seq) as first, max(seq) as end from audit_rows indexed by audit_rows_time
      where recorded_at >= ? and recorded_at < ?`,
    )
    .get(since, until)
  return [found?.first ?? last + 1, Math.min(found?.end ?? last, last)]
}

/** The places of the rows that change the state between two places, both exclusive. */
const changesBetween = (db: SQLite.Database, after: number, place: number): readonly number[] =>
  db
    .prepare<[number, number], number>(
      `select seq from audit_rows indexed by audit_rows_action where ${CHANGING_ROWS_SQL} and seq > ? and seq < ? order by seq`,
    )
    .pluck()
    .all(after, place)

/** After the first place, up to the second. */
type PlaceRange = readonly [after: number, last: number]

/** The places of the changes that the calls of some principals rest on. */
const changesFor = (
  db: SQLite.Database,
  principals: readonly string[],
  [after, last]: PlaceRange,
): readonly number[] =>
  db
    .prepare<(number | string)[], number>(
      `select seq from audit_rows indexed by audit_rows_action
      where seq > ? and seq <= ? and ${changingRowsSqlFor(principals.map(() => HOLDS))} order by seq`,
    )
    .pluck()
    .all(after, last, ...principals.map(subjectText))

/** The places of the changes of some principals' sets since an instant. */
const grantsFor = (
  db: SQLite.Database,
  principals: readonly string[],
  since: string,
  [after, last]: PlaceRange,
): readonly number[] =>
  db
    .prepare<(number | string)[], number>(
      `select seq from audit_rows indexed by audit_rows_action
      where ${SET_CHANGES_SQL} and recorded_at >= ? and seq > ? and seq <= ?
      and (${principals.map(() => HOLDS).join(' or ')})`,
    )
    .pluck()
    .all(since, after, last, ...principals.map(subjectText))

/** Reads by the indexes: changes, and the calls of a few principals. */
function* walkAbout(
  db: SQLite.Database,
  { since, until, callsAlone = false }: WalkScope,
  principals: readonly string[],
  between: PlaceRange,
): Generator<WalkedPart> {
  db.pragma(`cache_size = -${PAGES_KIB}`)
  const about = db
    .prepare<[string, string, string, number, number], number>(
      `select seq from audit_rows indexed by audit_rows_principal
      where principal_id = ? and ${DECISIONS} and seq > ? and seq <= ?`,
    )
    .pluck()
  const calls = principals.flatMap((name) => about.all(name, since, until, ...between))
  const changes = callsAlone ? grantsFor(db, principals, since, between) : changesFor(db, principals, between)
  const places = new Set([...changes, ...calls])
  yield* walkTo(
    db,
    [...places].toSorted((a, b) => a - b),
  )
}

function* walkTo(db: SQLite.Database, places: readonly number[]): Generator<WalkedPart> {
  const select = db
    .prepare<[string], string>(
      `select ${LEAF_OF_ROW} from json_each(?) cross join audit_rows on seq = value order by id`,
    )
    .pluck()
  for (let from = 0; from < places.length; from += SPAN) {
    const part = places.slice(from, from + SPAN)
    yield { leaves: select.all(JSON.stringify(part)), rows: from + part.length, of: places.length }
  }
}
