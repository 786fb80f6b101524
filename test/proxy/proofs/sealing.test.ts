import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import { currentTree } from '../../../db/ledger/tree/store.ts'
import { LogKeys, openTree } from '../../../proxy/proofs/log-keys.ts'
import { LedgerSealer } from '../../../proxy/proofs/sealer.ts'
import { SealingWatch } from '../../../proxy/proofs/sealing-watch.ts'
import { databaseUrl, skipWithoutFile } from '../../support/db/engine.ts'
import { asOwner } from '../../support/db/owner.ts'
import { entry, scratchDatabase } from '../../support/db/scratch-ledger.ts'
import { treeProblems } from '../../support/db/tree.ts'
import { runWithFault, withoutStrace } from '../../support/strace.ts'

const PROGRAM = join(import.meta.dirname, '../../support/db/seal-until-killed.ts')
const NAMED = { trustDomain: 'example.org', organisation: 'acme' }

interface Log {
  readonly database: Database
  readonly ledger: Ledger
  readonly keys: LogKeys
  readonly sealer: LedgerSealer
}

async function openLog(t: Test, url: string): Promise<Log> {
  const database = await openDatabase(url)
  const ledger = await openLedger({ database, version: '0.6.4' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  const keys = new LogKeys({ database, ledger, passphrase: 'of this test', clock: Date.now })
  await openTree(keys, database, NAMED)
  return { database, ledger, keys, sealer: new LedgerSealer({ database, ledger, keys, clock: Date.now }) }
}

const append = ({ ledger }: Log, rows: number) =>
  ledger.commit({ entries: Array.from({ length: rows }, () => entry()) })

async function checkpointsOf({ kysely }: Database): Promise<ReadonlyMap<string, string>> {
  const all = await kysely.selectFrom('audit_checkpoints').select(['size', 'root']).execute()
  return new Map(all.map(({ size, root }) => [String(size), root]))
}

/** The checkpoints that a process has said are stored, and are not. */
async function takenBack(database: Database, said: string): Promise<readonly string[]> {
  const stored = await checkpointsOf(database)
  // The last line may be cut off.
  const lines = said.split('\n').slice(0, -1)
  return lines.filter((line) => {
    const [size = '', root] = line.split(' ')
    return stored.get(size) !== root
  })
}

await t.test('rows of any number are under one checkpoint each time, and none is left behind', async (t) => {
  const log = await openLog(t, await databaseUrl(t.testdir()))
  let size = 0
  for (const rows of [1, 2, 255, 256, 300, 1]) {
    await append(log, rows)
    await log.sealer.seal()
    size += rows
    t.equal((await currentTree(log.database.kysely))?.size, size)
  }
  await log.sealer.seal()
  t.equal((await checkpointsOf(log.database)).size, 6, 'and none where no row has come')
  t.same(await treeProblems(log.database), [])
})

await t.test('two that seal at once never sign two checkpoints of one size', async (t) => {
  const log = await openLog(t, await databaseUrl(t.testdir()))
  const others = [1, 2, 3].map(() => new LedgerSealer({ ...log, clock: Date.now }))
  for (let round = 0; round < 20; round += 1) {
    await append(log, 1 + round * 3)
    await Promise.all([log.sealer, ...others].map((sealer) => sealer.seal()))
  }
  await log.sealer.seal()
  t.same(await treeProblems(log.database), [])
  const tree = await currentTree(log.database.kysely)
  t.equal(tree?.size, 20 + 3 * 190)
})

await t.test('a tree whose tiles were changed is signed no more', async (t) => {
  const url = await databaseUrl(t.testdir())
  const log = await openLog(t, url)
  await append(log, 5)
  await log.sealer.seal()
  const hashes = Buffer.alloc(5 * 32)
  const changed = log.database.kysely.updateTable('audit_tiles').set({ hashes }).compile()
  await log.ledger.commit({ statements: [{ ...changed, parameters: changed.parameters }], entries: [] })
  await append(log, 1)
  const afterwards = new LedgerSealer({ ...log, clock: Date.now })
  await t.rejects(afterwards.seal(), { message: /do not make its checkpoint of 5 rows/ })
  t.equal((await currentTree(log.database.kysely))?.size, 5)
})

await t.test(
  'sealing has stopped if rows wait, or the tree is no longer the one that was signed',
  async (t) => {
    const url = await databaseUrl(t.testdir())
    const log = await openLog(t, url)
    let now = 0
    const intervalMs = (): number => 1_000
    const watch = new SealingWatch({
      database: log.database,
      sealer: { isAtFault: false },
      now: () => now,
      intervalMs,
    })
    const stoppedAfter = async (ms: number): Promise<boolean> => {
      await watch.look()
      now += ms
      await watch.look()
      return watch.stopped
    }
    t.notOk(await stoppedAfter(3_600_000), 'nothing waits')
    await append(log, 3)
    t.notOk(await stoppedAfter(20_000), 'it may come yet')
    t.ok(await stoppedAfter(20_000), 'nobody leads')
    await log.sealer.seal()
    t.notOk(await stoppedAfter(3_600_000), 'all is sealed again')
    await append(log, 1)
    t.notOk(await stoppedAfter(20_000))
    await log.sealer.seal()
    await append(log, 1)
    t.notOk(await stoppedAfter(20_000), 'rows wait again, for others have been sealed')
    await log.sealer.seal()
    const { size, place } = (await currentTree(log.database.kysely)) ?? { size: 0, place: 0 }
    for (const edit of [`size = ${size - 1}`, `place = ${place - 1}`, `place = ${place + 1_000}`]) {
      await asOwner(url, `update audit_trees set ${edit}`)
      const afterwards = new LedgerSealer({ ...log, clock: Date.now })
      await append(log, 1)
      await t.rejects(afterwards.seal(), { message: /nothing more is signed/ }, edit)
      t.ok(afterwards.isAtFault, 'the one that leads says so at once')
      t.ok(await stoppedAfter(40_000), edit)
      await asOwner(url, `update audit_trees set size = ${size}, place = ${place}`)
      t.notOk(await stoppedAfter(10_000))
    }
    await log.sealer.seal()
    await asOwner(url, 'delete from audit_checkpoints')
    t.ok(await stoppedAfter(40_000), 'half a copy')
  },
)

await t.test('the key is rotated: both sign for a day, then the new one alone', async (t) => {
  const log = await openLog(t, await databaseUrl(t.testdir()))
  let now = Date.now()
  const keys = new LogKeys({ ...log, passphrase: 'of this test', clock: () => now })
  const sealer = new LedgerSealer({ ...log, keys, clock: () => now })
  const before = await keys.verifierKey()
  const after = await keys.rotate((vkey) => entry({ action: 'audit.key_rotated', detail: { vkey } }))
  t.not(after, before)
  t.equal(await keys.verifierKey(), after)
  await sealer.seal()
  const lines = async () =>
    (
      await log.database.kysely.selectFrom('audit_checkpoints').selectAll().orderBy('size', 'desc').execute()
    )[0]?.signatures.split('\n').length
  t.equal(await lines(), 2)
  now += 25 * 3_600_000
  await append(log, 1)
  await sealer.seal()
  t.equal(await lines(), 1)
  t.same(await treeProblems(log.database), [])
})

await t.test('F-26 kill -9 under load takes no checkpoint back', { skip: skipWithoutFile }, async (t) => {
  const file = await scratchDatabase(t.testdir())
  for (const enough of [0, 9]) {
    const child = spawn(process.execPath, [PROGRAM, file, '10000'], { stdio: ['ignore', 'pipe', 'inherit'] })
    const ended = once(child, 'exit')
    let said = ''
    let lines = 0
    for await (const line of createInterface({ input: child.stdout })) {
      said += `${line}\n`
      lines += 1
      if (lines > enough) child.kill('SIGKILL')
    }
    t.equal((await ended)[1], 'SIGKILL')
    const database = await openDatabase(`sqlite:${file}`)
    t.same(await takenBack(database, said), [])
    t.same(await treeProblems(database), [])
    await database.close()
  }
})

await t.test(
  'F-26 killed at any write, a process leaves a tree that the next one goes on with',
  { skip: skipWithoutFile || withoutStrace() },
  async (t) => {
    const directory = t.testdir()
    const file = await scratchDatabase(directory)
    for (const [call, all] of [
      ['pwrite64', [33, 64, 110]],
      ['fsync,fdatasync', [4]],
    ] as const) {
      for (const nth of all) {
        const fault = { call, fault: 'KILL', nth, log: join(directory, 'strace') } as const
        const { out, injected } = await runWithFault([PROGRAM, file, '6'], fault)
        t.comment(`${call} ${nth}: ${injected ? 'killed' : 'ran to its end'}`)
        const database = await openDatabase(`sqlite:${file}`)
        t.same(await takenBack(database, out), [])
        t.same(await treeProblems(database), [])
        await database.close()
      }
    }
  },
)
