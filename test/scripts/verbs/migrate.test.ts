import { existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { sallyport } from '../../support/run.ts'

const server = await cluster()

for (const engine of ['sqlite', 'postgres']) {
  t.test(`migrate says what a ${engine} database needs, and runs it once`, async (t) => {
    const directory = t.testdir()
    const url = engine === 'postgres' ? await server.fresh() : ''
    const env = { MCP_PROXY_DATA_DIR: join(directory, 'data'), MCP_PROXY_DATABASE_URL: url }
    const needed = await sallyport(['migrate', 'status'], env)
    t.match(needed, { code: 3, out: /^pending 0001_principals\n(pending \d{4}_\w+\n)+$/ })
    t.match(await sallyport(['migrate', 'up', '--dry-run'], env), { code: 3, out: needed.out })
    t.notOk(existsSync(join(directory, 'data')), 'nothing was made')
    t.match(await sallyport(['migrate', 'up'], env), {
      code: 0,
      out: needed.out.replaceAll('pending', 'applied'),
    })
    t.match(await sallyport(['migrate', 'up'], env), { code: 0, out: /^$/ })
    t.match(await sallyport(['migrate', 'status'], env), {
      code: 0,
      out: needed.out.replaceAll('pending', 'applied'),
    })
  })
}

t.test('migrate refuses what it does not know', async (t) => {
  t.match(await sallyport(['migrate']), { code: 1, err: /say status or up/ })
  t.match(await sallyport(['migrate', 'down']), { code: 1, err: /say status or up/ })
})
