import t from 'tap'
import { pageOf, type RowSource } from '../../../db/ledger/verify/inspect.ts'
import { inspectPostgres } from '../../../db/postgres/ledger/inspect.ts'
import { changed, decided, ended, loaded, started } from '../../support/db/history.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { entry } from '../../support/db/scratch-ledger.ts'
import { sallyport } from '../../support/run.ts'

const server = await cluster()

t.test('verify recomputes a ledger of many streams, out of PostgreSQL and of its export', async (t) => {
  const url = await server.migrated()
  const [first, second] = [await replica(t, url), await replica(t, url)]
  await first.ledger.commit({ entries: [started, loaded(), changed('agent.created', 1)] })
  await second.ledger.commit({ entries: [started, loaded(), decided(1)] })
  const patched = changed('agent.capabilities_patched', 2, { capabilities: [] })
  await first.ledger.commit({ entries: [decided(2), patched] })
  await second.ledger.commit({ entries: [{ ...ended(decided(2)), status: 'unknown' }] })
  const both = async () => [
    await sallyport(['verify', url]),
    await sallyport(['verify', '--authority', '-'], {}, (await sallyport(['export-audit', url])).out),
  ]
  for (const whole of await both())
    t.match(whole, {
      code: 0,
      out: /9 rows in 2 streams\n[\s\S]*recomputed 2, disagree 0, not recomputable 0,/,
    })
  // Nothing asks a decision of the test whether the change was made before it.
  const [late] = await second.ledger.commit({ entries: [decided(3)] })
  for (const found of await both())
    t.match(found, { code: 5, out: `DISAGREES: row ${late?.stream}:${late?.seq} ` })
})

t.test('verify finds a guard that was switched off, and a row that was changed meanwhile', async (t) => {
  const url = await server.migrated()
  const { ledger } = await replica(t, url)
  await ledger.commit({ entries: [entry({ action: 'service.started', status: 'success' }), entry()] })
  await raw(url, 'alter table audit_rows disable trigger audit_rows_update')
  t.match(await sallyport(['verify', url]), { code: 2, out: /audit_rows_update was changed or switched off/ })
  await raw(url, "update audit_rows set model = 'gpt-4' where seq = 2")
  t.match(await sallyport(['verify', url]), { code: 2, out: /r[0-9a-f]{16}:2/ })
  await raw(url, "update audit_rows set model = 'gpt-5' where seq = 2")
  await raw(url, 'alter table audit_rows enable always trigger audit_rows_update')
})

t.test(
  'verify takes the time that it needs: each question has its own, and not all of them together',
  async (t) => {
    const url = await server.migrated()
    const { ledger } = await replica(t, url)
    await ledger.commit({ entries: [entry({ action: 'service.started', status: 'success' }), entry()] })
    async function* slowly(rows: RowSource): AsyncGenerator<ReturnType<typeof pageOf>> {
      // Longer than a gateway waits for an answer.
      await raw(url, 'select pg_sleep(2.2)')
      for await (const next of rows) yield pageOf(next)
    }
    const { verdict } = await inspectPostgres(url, slowly)
    t.match(verdict, { ok: true, rows: 2 })
  },
)
