import { cp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { parseVerifierKey } from '../../../../db/ledger/tree/note.ts'
import { currentTree, newestCheckpoint, noteOfCheckpoint } from '../../../../db/ledger/tree/store.ts'
import { type LogTrust, NO_LOG_TRUST, parseSignedCheckpoints } from '../../../../db/ledger/tree/trusted.ts'
import { exitCodeOf } from '../../../../db/ledger/verify/inspect.ts'
import { headPath } from '../../../../db/sqlite/ledger/head-file.ts'
import { inspectDatabase } from '../../../../db/sqlite/ledger/inspect.ts'
import { LogKeys, openTree } from '../../../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../../../proxy/proofs/sealer.ts'
import { chainOf, decided, ended } from '../../../support/db/history.ts'
import { HISTORY, honestDatabase, storeRows } from '../../../support/db/ledger-with-tables.ts'
import { AT, entry, withRaw } from '../../../support/db/scratch-ledger.ts'

const CALLS = Array.from({ length: 400 }, (_, id) => {
  const call = decided(100 + id, { authority: { revision: 2 } })
  return [call, ended(call)]
}).flat()
const ALL = [...HISTORY, ...CALLS]

/** Seals what is there, as another log would where `org` is another; gives what is to be kept elsewhere. */
async function seal(file: string, more = 0): Promise<LogTrust> {
  const database = await openDatabase(`sqlite:${file}`)
  const ledger = await openLedger({ database, version: '0.6.4' })
  const keys = new LogKeys({ database, ledger, passphrase: 'of this test', clock: () => AT })
  await openTree(keys, database, { trustDomain: 'example.org', organisation: 'acme' })
  const sealer = new LedgerSealer({ database, ledger, keys, clock: () => AT })
  await sealer.seal()
  if (more > 0)
    await ledger.commit({
      entries: Array.from({ length: more }, () =>
        entry({ action: 'config.rejected', request_id: null, detail: {} }),
      ),
    })
  const tree = await currentTree(database.kysely)
  const newest = tree && (await newestCheckpoint(database.kysely, tree.tree))
  if (!tree || !newest) throw new Error('nothing was sealed')
  const checkpoints = parseSignedCheckpoints(await noteOfCheckpoint(database.kysely, tree, newest))
  const trusted = { keys: [parseVerifierKey(await keys.verifierKey())], witnesses: [], checkpoints }
  await ledger.close()
  await database.close()
  return trusted
}

const directory = t.testdir()
const honest = await honestDatabase(directory, ALL)
const kept = await seal(honest)
let count = 0

/** A copy of the honest database, with something done to it. */
async function forged(work: (file: string) => unknown): Promise<string> {
  count += 1
  const file = join(directory, `forged-${count}.db`)
  await cp(honest, file)
  await cp(headPath(honest), headPath(file))
  await work(file)
  return file
}

const sql = (text: string) => (file: string) => withRaw(file, (db) => db.exec(text))

/** Takes the guards away for the time of the work, as the owner of the file can. */
const unguarded = (work: (file: string) => unknown) => async (file: string) => {
  const guards = withRaw(file, (db) =>
    db
      .prepare<[], { name: string; sql: string }>(
        "select name, sql from sqlite_schema where type = 'trigger'",
      )
      .all(),
  )
  for (const { name } of guards) sql(`drop trigger ${name}`)(file)
  await work(file)
  for (const guard of guards) sql(guard.sql)(file)
}

const rewritten = (calls = CALLS) =>
  unguarded(async (file) => {
    sql('delete from audit_rows')(file)
    storeRows(file, chainOf([...HISTORY, ...calls]))
  })
const withoutTree = sql(
  'delete from audit_trees; delete from audit_tiles; delete from audit_checkpoints; delete from audit_keys',
)

const OTHER = CALLS.map((row, index) => (index < 2 ? { ...row, model: 'gpt-4' } : row))
const flipped = (tile: string) => (file: string) =>
  withRaw(file, (db) => {
    const hashes = Buffer.from(
      db.prepare(`select hashes from audit_tiles where ${tile}`).pluck().get() as Buffer,
    )
    hashes.writeUInt8(hashes.readUInt8(100) ^ 1, 100)
    db.prepare(`update audit_tiles set hashes = ? where ${tile}`).run(hashes)
  })

const CASES: readonly (readonly [
  name: string,
  work: (file: string) => unknown,
  alone: number,
  held: number,
])[] = [
  ['nothing', () => {}, 0, 0],
  ['a full tile changed', flipped('level = 0 and n = 1'), 3, 3],
  ['the last tile changed', flipped('level = 0 and n = 3'), 3, 3],
  [
    'an upper tile cut short',
    sql('update audit_tiles set hashes = substr(hashes, 1, 32) where level = 1'),
    3,
    3,
  ],
  ['a tile gone', sql('delete from audit_tiles where level = 0 and n = 2'), 3, 3],
  [
    'another root',
    sql("update audit_checkpoints set root = 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='"),
    3,
    3,
  ],
  ['no root', sql("update audit_checkpoints set root = 'x'"), 3, 3],
  ['another size', sql('update audit_checkpoints set size = size - 1'), 3, 3],
  ['a larger size', sql('update audit_checkpoints set size = size + 1'), 3, 3],
  ['another origin', sql("update audit_trees set origin = 'example.org/other/audit'"), 3, 3],
  ['no signature', sql("update audit_checkpoints set signatures = '— a AAAAAAAA'"), 3, 3],
  ['no key', sql('delete from audit_keys'), 3, 3],
  ['rows written anew', rewritten(OTHER), 3, 3],
  ['rows cut off', rewritten(CALLS.slice(0, -10)), 4, 4],
  ['no tree', withoutTree, 0, 0],
  // What only somebody else's memory finds.
  [
    'rows and tree written anew',
    async (file) => {
      withoutTree(file)
      await rewritten(OTHER)(file)
      await seal(file)
    },
    0,
    3,
  ],
  [
    'rows and tree cut off',
    async (file) => {
      withoutTree(file)
      await rewritten(CALLS.slice(0, -10))(file)
      await seal(file)
    },
    0,
    3,
  ],
]

await t.test(
  'what is stored of a tree is held against the rows, and both against what was kept elsewhere',
  async (t) => {
    for (const [name, work, alone, held] of CASES) {
      const file = await forged(work)
      const found = await inspectDatabase(file, AT, (rows) => rows)
      t.equal(
        exitCodeOf(found),
        alone,
        `${name}: ${found.tree?.problems.join('; ')} ${found.findings.join('; ')}`,
      )
      const against = await inspectDatabase(file, AT, (rows) => rows, kept)
      t.equal(
        exitCodeOf(against),
        held,
        `${name}, held against the kept: ${against.tree?.problems.join('; ')}`,
      )
      t.equal(against.tree?.vouched, held === 0, name)
      t.equal(found.tree?.vouched ?? false, false, `${name}: nobody vouches for it`)
      await rm(file)
    }
  },
)

await t.test('rows that are not sealed yet are counted, and are no fault', async (t) => {
  const file = await forged(() => {})
  await seal(file, 7)
  const found = await inspectDatabase(file, AT, (rows) => rows, {
    ...NO_LOG_TRUST,
    checkpoints: kept.checkpoints,
  })
  t.same([found.tree?.problems, found.findings, found.authority?.problems], [[], [], []])
  t.equal(exitCodeOf(found), 0)
  t.match(found.tree, { sealed: ALL.length, behind: 7, vouched: true, checkpoints: 2 })
})
