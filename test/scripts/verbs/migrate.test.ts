import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw } from '../../support/db/postgres/replica.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

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
  t.match(await sallyport(['migrate']), { code: 1, err: /use status or up/ })
  t.match(await sallyport(['migrate', 'down']), { code: 1, err: /use status or up/ })
})

t.test('migrate up --grants gives the role of a gateway what it needs, as the role that owns', async (t) => {
  const url = await server.fresh()
  const file = (name: string): string => join(import.meta.dirname, '../../../deploy/postgres', name)
  await raw(url, readFileSync(file('roles.sql'), 'utf8'))
  const as = (role: string): Record<string, string> => ({
    MCP_PROXY_DATA_DIR: join(t.testdir(), 'data'),
    MCP_PROXY_DATABASE_URL: url.replace('user=postgres', `user=${role}`),
  })
  const owner = as('sallyport_owner')
  const up = ['migrate', 'up', '--grants', file('grants.sql')]
  t.match(await sallyport(['migrate', 'up', '--grants', file('gone.sql')], owner), { code: 1, err: /ENOENT/ })
  t.match(await sallyport(['migrate', 'status'], owner), { code: 3 }, 'nothing was changed')
  t.match(await sallyport(up, owner), { code: 0, out: /^applied 0001_principals\n/, err: '' })
  t.match(await sallyport(up, owner), { code: 0, out: '', err: '' }, 'and again')
  const { MCP_PROXY_DATABASE_URL: gateway = '' } = as('sallyport_gateway')
  await (await openDatabase(gateway)).close()
  await raw(gateway, 'select count(*) from audit_rows')
  await t.rejects(raw(gateway, 'delete from audit_rows'), /permission denied/)
  t.match(await sallyport([...up, '--dry-run'], { ...owner, MCP_PROXY_DATABASE_URL: '' }), {
    code: 1,
    err: /--grants works only with up, on PostgreSQL/,
  })
})
