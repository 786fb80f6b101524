import { generateKeyPairSync } from 'node:crypto'
import { rmSync } from 'node:fs'
import { cp } from 'node:fs/promises'
import { join } from 'node:path'
import type { Database } from '../../../../db/database.ts'
import { openDatabase } from '../../../../db/engine.ts'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../../db/ledger/record/leaf.ts'
import { openLedger } from '../../../../db/ledger/record/ledger.ts'
import { recordAnchoring } from '../../../../db/ledger/tree/anchored.ts'
import { checkpointText } from '../../../../db/ledger/tree/checkpoint.ts'
import { cosignNote, verifierKeyText } from '../../../../db/ledger/tree/note.ts'
import {
  checkpointOf,
  currentTree,
  newestCheckpoint,
  noteOfCheckpoint,
} from '../../../../db/ledger/tree/store.ts'
import { headPath } from '../../../../db/sqlite/ledger/head-file.ts'
import { LogKeys, openTree } from '../../../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../../../proxy/proofs/sealer.ts'
import { decided, decidedTool, ended, note } from '../../db/history.ts'
import { HISTORY, honestDatabase, storeRows } from '../../db/ledger-with-tables.ts'
import { AT, rowsOf, withRaw } from '../../db/scratch-ledger.ts'
import type { Kept } from '../life/log.ts'

/** A database whose rows are sealed, and what was kept of it elsewhere. */
export interface Sealed {
  readonly file: string
  readonly rows: readonly StoredRow[]
  readonly kept: readonly Kept[]
  /** The verifier keys of the log, the newest first, and that of a witness. */
  readonly keys: readonly string[]
  readonly witness: string
}

/** The rows of a seal, which end at a place that is no end of a tile; the last ones are not sealed. */
const PORTIONS = [60, 150, 131, 4]
const JKT = 'k'.repeat(43)

function callsOf(from: number, rows: number): readonly LedgerEntry[] {
  return Array.from({ length: rows }, (_, index) => {
    const id = from + (index >> 1)
    const authority = { revision: 2 }
    const call = {
      ...(id % 3 === 0 ? decidedTool(id, { authority }) : decided(id, { authority })),
      dpop_jkt: JKT,
      request_id: `req_${1_000 + id}`,
    }
    return index % 2 === 0 ? call : ended(call)
  })
}

/** Seals what is there, again and again, by the service's own sealer; the key is another one from the third seal on. */
export async function sealInPortions(
  database: Database,
  begin: readonly LedgerEntry[] = [],
  portions: readonly number[] = PORTIONS,
): Promise<Omit<Sealed, 'file' | 'rows'>> {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const ledger = await openLedger({ database, version: '0.6.4' })
  if (begin.length > 0) await ledger.commit({ entries: begin })
  const keys = new LogKeys({ database, ledger, passphrase: 'of this test', clock: () => AT })
  await openTree(keys, database, { trustDomain: 'example.org', organisation: 'acme' })
  const sealer = new LedgerSealer({ database, ledger, keys, clock: () => AT })
  const kept: Kept[] = []
  const vkeys = [await keys.verifierKey()]
  await sealer.seal()
  for (const [index, rows] of portions.entries()) {
    if (index === 2) vkeys.unshift(await keys.rotate((vkey) => note('audit.key_rotated', { vkey })))
    await ledger.commit({ entries: callsOf(index * 500, rows) })
    if (index + 1 === portions.length) break
    await sealer.seal()
    const tree = await currentTree(database.kysely)
    const newest = tree && (await newestCheckpoint(database.kysely, tree.tree))
    if (!tree || !newest) throw new Error('nothing was sealed')
    const proof = cosignNote(
      checkpointText(checkpointOf(tree.origin, newest)),
      'w.example',
      privateKey,
      1_790_000_000,
    )
    await ledger.commit({
      entries: [],
      statements: recordAnchoring(database.kysely, {
        tree: tree.tree,
        anchor: 'witness:w.example',
        size: newest.size,
        proof,
        at: AT,
      }),
    })
    kept.push({ size: newest.size, note: await noteOfCheckpoint(database.kysely, tree, newest) })
  }
  await ledger.close()
  return { kept, keys: vkeys, witness: verifierKeyText('w.example', 'witness', publicKey) }
}

export async function sealedDatabase(directory: string): Promise<Sealed> {
  const file = await honestDatabase(directory, HISTORY)
  const database = await openDatabase(`sqlite:${file}`)
  const sealed = await sealInPortions(database)
  await database.close()
  return { file, rows: rowsOf(file), ...sealed }
}

/** A copy of a database and of the head beside it. */
export async function copyOf({ file }: Sealed, directory: string): Promise<string> {
  const copy = join(directory, 'copy.db')
  for (const beside of ['-wal', '-shm']) rmSync(`${copy}${beside}`, { force: true })
  await cp(file, copy)
  await cp(headPath(file), headPath(copy))
  return copy
}

export const run = (file: string, sql: string): void => withRaw(file, (db) => void db.exec(sql))

/** Takes the guards of the rows away for the time of the work, as the owner of the file can. */
export function unguarded(file: string, work: () => void): void {
  interface Guard {
    readonly name: string
    readonly sql: string
  }
  const guards = withRaw(file, (db) =>
    db
      .prepare<[], Guard>(
        "select name, sql from sqlite_schema where type = 'trigger' and tbl_name = 'audit_rows'",
      )
      .all(),
  )
  for (const { name } of guards) run(file, `drop trigger ${name}`)
  work()
  for (const guard of guards) run(file, guard.sql)
}

/** Puts other rows in the place of all, and the head beside them. */
export const replaceRows = (file: string, rows: readonly StoredRow[]): void =>
  unguarded(file, () => {
    run(file, 'delete from audit_rows')
    storeRows(file, rows)
  })
