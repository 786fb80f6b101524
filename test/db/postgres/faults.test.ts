import { Client } from 'pg'
import t from 'tap'
import { STREAM_CLASS, streamKey, TERMINATE_LOCK_HOLDER } from '../../../db/postgres/ledger/locks.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { entry } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

/** Commits until it goes through again; returns how often it did not. */
async function untilItGoes(commit: () => Promise<unknown>): Promise<number> {
  const until = performance.now() + 15_000
  for (let refused = 0; ; refused += 1) {
    try {
      await commit()
      return refused
    } catch (error) {
      if (performance.now() > until) throw error
    }
  }
}

t.test('F-08 a server that is cut off under load loses nothing that it acknowledged', async (t) => {
  const url = await server.migrated()
  const { ledger, database } = await replica(t, url)
  const acknowledged: string[] = []
  for (let round = 0; round < 5; round += 1) {
    let cut = false
    const caller = async (name: number): Promise<void> => {
      for (let call = 0; !cut; call += 1) {
        const id = `req_${round}_${name}_${call}`
        try {
          await ledger.commit({ entries: [entry({ request_id: id })] })
          acknowledged.push(id)
        } catch (error) {
          if ((error as { code?: string }).code !== 'unavailable') throw error
        }
      }
    }
    const callers = Array.from({ length: 32 }, (_, name) => caller(name))
    while (acknowledged.length < (round + 1) * 200) await new Promise((resolve) => setImmediate(resolve))
    await server.stop('immediate')
    cut = true
    await Promise.all(callers)
    // The last one may have been answered just before.
    await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable' })
    t.ok(ledger.failing, 'it says so')
    await server.start()
    await untilItGoes(() => ledger.commit({ entries: [entry()] }))
    t.notOk(ledger.failing)
  }
  const { rows } = await raw(url, 'select request_id from audit_rows')
  const stored = new Set(rows.map((row: { request_id: string }) => row.request_id))
  t.same(
    acknowledged.filter((id) => !stored.has(id)),
    [],
  )
  t.ok(await database.kysely.selectFrom('settings').selectAll().execute())
})

t.test('F-08 a commit that was never answered is looked up: it is told as it is', async (t) => {
  const url = await server.migrated()
  const { ledger } = await replica(t, url)
  await ledger.commit({ entries: [entry({ request_id: 'req_before' })] })
  // The connection is cut from outside again and again, at whatever it is doing.
  let over = false
  const cutting = (async () => {
    while (!over)
      await raw(
        url,
        "select pg_terminate_backend(pid) from pg_stat_activity where query ilike '%commit%' and pid <> pg_backend_pid()",
      )
  })()
  const told = new Map<string, boolean>()
  for (let call = 0; call < 300; call += 1) {
    const id = `req_${call}`
    await ledger.commit({ entries: [entry({ request_id: id })] }).then(
      () => told.set(id, true),
      () => told.set(id, false),
    )
  }
  over = true
  await cutting
  const { rows } = await raw(url, 'select request_id from audit_rows')
  const stored = new Set(rows.map((row: { request_id: string }) => row.request_id))
  t.same(
    [...told].filter(([id, durable]) => durable !== stored.has(id)),
    [],
    'acknowledged and stored are the same calls',
  )
  await untilItGoes(() => ledger.commit({ entries: [entry()] }))
})

t.test('F-10 a server that is frozen makes commits fail, and not wait for ever', async (t) => {
  const url = await server.migrated()
  const { ledger } = await replica(t, url)
  await ledger.commit({ entries: [entry()] })
  const { rows } = await raw(
    url,
    'select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
  )
  const pids = [server.postmaster(), ...rows.map(({ pid }: { pid: number }) => pid)]
  const tell = (signal: NodeJS.Signals): void => {
    for (const pid of pids) {
      try {
        process.kill(pid, signal)
      } catch {
        // Its connection was given up meanwhile, and so has it.
      }
    }
  }
  t.teardown(() => tell('SIGCONT'))
  tell('SIGSTOP')
  await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable' })
  tell('SIGCONT')
  await untilItGoes(() => ledger.commit({ entries: [entry()] }))
})

t.test('a database that was set back behind what this process has written is not written on', async (t) => {
  const url = await server.migrated()
  const { ledger } = await replica(t, url)
  await ledger.commit({ entries: [entry()] })
  await ledger.commit({ entries: [entry()] })
  await raw(
    url,
    'alter table audit_rows disable trigger user; delete from audit_rows where seq = 2; alter table audit_rows enable always trigger audit_rows_delete; alter table audit_rows enable always trigger audit_rows_update; alter table audit_rows enable always trigger audit_rows_truncate; alter table audit_rows enable always trigger audit_rows_insert',
  )
  await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable' })
  t.match(await ledger.failed, { message: /was changed under its writer|is row 1, and not row 2/ })
})

t.test(
  'F-11 a session that the server still believes in does not keep its process from writing on',
  async (t) => {
    const url = await server.migrated()
    const { ledger } = await replica(t, url)
    const [sealed] = await ledger.commit({ entries: [entry()] })
    const lock = [STREAM_CLASS, streamKey(sealed?.stream ?? '')]
    // The session of before, whose connection is gone: here somebody else stands in for it.
    const before = new Client(url)
    before.on('error', () => {})
    await before.connect()
    t.teardown(() => before.end().catch(() => {}))
    const taken = before.query('select pg_advisory_lock($1, $2)', lock)
    await raw(url, TERMINATE_LOCK_HOLDER, lock)
    await taken
    await untilItGoes(() => ledger.commit({ entries: [entry()] }))
    t.match(await ledger.commit({ entries: [entry()] }), [{ stream: sealed?.stream }])
  },
)
