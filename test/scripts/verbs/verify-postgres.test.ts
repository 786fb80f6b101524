import t from 'tap'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { entry } from '../../support/db/scratch-ledger.ts'
import { sallyport } from '../../support/run.ts'

const server = await cluster()

t.test('verify reads a ledger of many streams out of PostgreSQL', async (t) => {
  const url = await server.fresh()
  for (let n = 0; n < 2; n += 1) {
    const { ledger } = await replica(t, url)
    await ledger.commit({ entries: [entry({ action: 'service.started', status: 'success' }), entry()] })
  }
  const whole = await sallyport(['verify', url])
  t.match(whole, { code: 0, out: /4 rows/ })
  const exported = await sallyport(['export-audit', url])
  t.match(exported, { code: 0, out: /^(\{.+\}\n){4}$/ })
  t.match(await sallyport(['verify', '-'], {}, exported.out), { code: 0, out: /4 rows/ })
})

t.test('verify finds a guard that was switched off, and a row that was changed meanwhile', async (t) => {
  const url = await server.fresh()
  const { ledger } = await replica(t, url)
  await ledger.commit({ entries: [entry({ action: 'service.started', status: 'success' }), entry()] })
  await raw(url, 'alter table audit_rows disable trigger audit_rows_update')
  t.match(await sallyport(['verify', url]), { code: 2, out: /audit_rows_update was changed or switched off/ })
  await raw(url, "update audit_rows set leaf = replace(leaf, 'gpt-5', 'gpt-4') where seq = 2")
  t.match(await sallyport(['verify', url]), { code: 2, out: /r[0-9a-f]{16}:2/ })
  await raw(url, "update audit_rows set leaf = replace(leaf, 'gpt-4', 'gpt-5') where seq = 2")
  await raw(url, 'alter table audit_rows enable always trigger audit_rows_update')
})
