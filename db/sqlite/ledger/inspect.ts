import type SQLite from 'better-sqlite3'
import { compareTables, type Tables } from '../../ledger/authority/compare.ts'
import type { Replay } from '../../ledger/authority/replay.ts'
import { MAIN_STREAM, type StoredRow } from '../../ledger/record/leaf.ts'
import { inspectTree } from '../../ledger/tree/inspect.ts'
import { NOTHING_TRUSTED, type Trusted, trustsNothing } from '../../ledger/tree/trusted.ts'
import { type Inspection, inspectRows, type Rows } from '../../ledger/verify/inspect.ts'
import { recomputer } from '../../ledger/verify/recompute.ts'
import type { Damaged } from '../../ledger/verify/verify.ts'
import { MIGRATIONS } from '../migrations.ts'
import { type AuditSchema, auditSchemaProblem } from './form/schema.ts'
import { expectedAuditSchema } from './form/schema-expected.ts'
import { headProblem, readHead } from './head-file.ts'
import { leafRowsBehind } from './leaf-rows.ts'
import { liveRows, openReadOnly, rowsBehind } from './rows.ts'
import { storedLog } from './stored-log.ts'
import { hasPrincipals, readTables, viewsInPlaceOfTables } from './tables.ts'

/**
 * Verifies a database, also while the gateway writes it: its chains, the schema of the audit tables, the head
 * that was noted beside it, every decision, and the tables that decisions rest on against what the rows of
 * changes say. `at`: ms since the epoch. `shown` may show the progress of the rows. Throws where the file is
 * no database with a ledger.
 */
export async function inspectDatabase(
  file: string,
  at: number,
  shown: (rows: Iterable<StoredRow | Damaged>) => Rows,
  trusted: Trusted = NOTHING_TRUSTED,
): Promise<Inspection> {
  const db = openReadOnly(file)
  try {
    return await inspectOpened(db, file, at, shown, trusted)
  } finally {
    db.close()
  }
}

async function inspectOpened(
  db: SQLite.Database,
  file: string,
  at: number,
  shown: (rows: Iterable<StoredRow | Damaged>) => Rows,
  trusted: Trusted,
): Promise<Inspection> {
  // Before the rows: the writer notes a head behind the commit, so it is never ahead of rows that are read
  // later.
  const noted = readHead(file)
  const expected = await expectedAuditSchema()
  const odd = viewsInPlaceOfTables(db)
  const walk = recomputer()
  const atEnd: Beside[] = []
  let [last, hashAt]: [number, string | undefined] = [0, undefined]
  const onRow = ({ stream, seq, row_hash: hash }: StoredRow): void => {
    if (stream !== MAIN_STREAM) return
    last = seq
    if (seq === noted?.seq) hashAt = hash
  }
  const isOurForm = odd.length === 0 && isOfThisVersion(db) && auditSchemaProblem(db, expected) === null
  const behind = isOurForm ? leafRowsBehind : rowsBehind
  const besides = () => (odd.length > 0 ? notRead(odd) : readBeside(db, expected))
  const rows = shown(liveRows(db, () => atEnd.push(besides()), behind))
  // Before the rows too: what is sealed is there.
  const stored = odd.length > 0 ? null : storedLog(db)
  const tree = stored || !trustsNothing(trusted) ? inspectTree(stored, trusted) : undefined
  const inspection = await inspectRows(rows, { authority: true, onRow, walk, tree })
  const { verdict } = inspection
  // Behind a bad row neither the tables nor the head say anything more.
  const [beside = odd.length > 0 ? notRead(odd) : schemaAlone(db, expected)] = atEnd
  const head = verdict.ok ? headProblem(noted, last, hashAt) : null
  const replay = verdict.ok ? walk.replay : null
  const [findings, notes] = besideFindings(beside, replay, verdict.rows, at)
  const other = head?.kind === 'other' ? [head.problem] : []
  return {
    ...inspection,
    findings: [...inspection.findings, ...findings, ...other],
    notes,
    cutShort: head?.kind === 'ahead' ? head.problem : null,
  }
}

/** What stands beside the rows, of the instant of the last row. */
interface Beside {
  readonly schema: string | null
  /** Null where the database is not of this version of the service. */
  readonly tables: Tables | null
  /** Whether there is a principal at all. */
  readonly someone: boolean
}

function readBeside(db: SQLite.Database, expected: AuditSchema): Beside {
  if (!isOfThisVersion(db)) return { schema: null, tables: null, someone: false }
  return { ...schemaAlone(db, expected), tables: readTables(db), someone: hasPrincipals(db) }
}

/** A view says what its maker likes, and may have no end: no table is read of a database that has one in its place. */
const notRead = (odd: readonly string[]): Beside => ({
  schema: `no table is compared, because there is a view in the place of one: ${odd.join(', ')}`,
  tables: null,
  someone: false,
})

// Where a page of the file cannot be read, the tables may be on it.
function schemaAlone(db: SQLite.Database, expected: AuditSchema): Beside {
  const schema = isOfThisVersion(db) ? auditSchemaProblem(db, expected) : null
  return { schema, tables: null, someone: false }
}

function isOfThisVersion(db: SQLite.Database): boolean {
  const has = db.prepare("select 1 from sqlite_schema where name = 'kysely_migration'").get() !== undefined
  const applied = has ? db.prepare<[], string>('select name from kysely_migration').pluck().all() : []
  const ours = Object.keys(MIGRATIONS)
  return applied.length === ours.length && ours.every((name) => applied.includes(name))
}

function besideFindings(
  { schema, tables, someone }: Beside,
  replay: Replay | null,
  rows: number,
  at: number,
): readonly [findings: readonly string[], notes: readonly string[]] {
  const findings = schema === null ? [] : [schema]
  if (rows === 0 && someone) return [[...findings, EMPTIED], []]
  if (!replay) return [findings, []]
  if (!tables) return [findings, [OF_ANOTHER_VERSION]]
  const compared = compareTables(replay, tables, at)
  const { notCompared: old } = compared
  const notes =
    old === 0 ? [] : [`not compared: ${old} principals and resources from before rows of version 2`]
  return [[...findings, ...compared.findings], notes]
}

const EMPTIED = 'there are principals, but no row that made them'

const OF_ANOTHER_VERSION =
  'not compared: schema and tables, because the database is of another version of the service'
