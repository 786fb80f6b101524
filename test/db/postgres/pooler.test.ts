import t, { type Test } from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { readingPool, writingClient } from '../../../db/postgres/connection.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { pgbouncer, skipWithoutPgbouncer } from '../../support/db/postgres/pgbouncer.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { entry } from '../../support/db/scratch-ledger.ts'
import { testGateway } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'

const server = await cluster()
const skip = skipWithoutPgbouncer
const NO_SESSION = /connection pooler that shares sessions .* name the direct address .* pool in session mode/
const LOCKS = "select * from pg_locks where locktype = 'advisory'"
const CHAT = { model: 'gpt-4o', messages: [] }

/** A pooler before an empty database. `words`: its settings, as it comes else. */
async function pooled(t: Test, words: Record<string, string>) {
  const url = await server.fresh()
  return { direct: url, pooler: await pgbouncer(t, url, words) }
}

t.test('in session mode a pooler serves gateways as it comes', { skip }, async (t) => {
  const { direct, pooler } = await pooled(t, { pool_mode: 'session' })
  await t.test('two gateways answer calls, and hear of each other', async (t) => {
    const settings = { MCP_PROXY_DATABASE_URL: pooler.url, MCP_PROXY_KEY_PASSPHRASE: 'of all' }
    const [one, other] = [await testGateway(t, { settings }), await testGateway(t, { settings })]
    const bot = await one.enroll('bot', ['llm.chat'])
    const ask = async () => (await other.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status
    t.equal(await ask(), 200)
    t.equal((await one.admin('DELETE', `/v1/admin/agents/${bot.id}`)).status, 204)
    t.equal(await ask(), 401, 'what one has changed holds at the other')
  })
  await eventually(
    () => raw(direct, LOCKS),
    ({ rows }) => rows.length === 0,
  )
  t.same((await raw(direct, LOCKS)).rows, [], 'no lock is left behind in the pool')
  const { rows } = await raw(pooler.url, 'show statement_timeout')
  t.same(rows, [{ statement_timeout: '0' }], 'nor a setting')
})

t.test('settings are in force on each connection, directly and by a pooler', { skip }, async (t) => {
  const { direct, pooler } = await pooled(t, { pool_mode: 'session' })
  for (const url of [direct, pooler.url, `${direct}&options=-c%20work_mem%3D8MB`]) {
    const client = writingClient(url, 1_234)
    await client.connect()
    t.same((await client.query('show statement_timeout')).rows, [{ statement_timeout: '1234ms' }])
    await client.end()
    const pool = readingPool(url, () => {})
    t.same((await pool.query('show transaction_read_only')).rows, [{ transaction_read_only: 'on' }])
    await pool.end()
  }
})

/** Poolers on which no session is one. Whoever has the pool to itself always gets the same connection. */
const SHARING = [
  { pool_mode: 'transaction' },
  { pool_mode: 'transaction', ignore_startup_parameters: 'options,extra_float_digits' },
  { pool_mode: 'transaction', server_round_robin: '1' },
  { pool_mode: 'transaction', default_pool_size: '1' },
  { pool_mode: 'transaction', server_reset_query_always: '1' },
  { pool_mode: 'statement' },
  { pool_mode: 'statement', server_round_robin: '1' },
]

t.test('a pooler that shares sessions between transactions is refused at the start', { skip }, async (t) => {
  for (const words of SHARING) {
    const { direct, pooler } = await pooled(t, words)
    const name = JSON.stringify(words)
    // Connections that the pool has already.
    await Promise.all([1, 2, 3].map(() => raw(pooler.url, 'select pg_sleep(0.05)')))
    await t.rejects(openDatabase(pooler.url), { message: NO_SESSION }, name)
    t.same((await raw(direct, LOCKS)).rows, [], 'no lock is left behind')
    for (let n = 0; n < 4; n += 1) {
      const asked =
        "select current_setting('statement_timeout') || current_setting('default_transaction_read_only') as is"
      t.same((await raw(pooler.url, asked)).rows, [{ is: '0off' }], 'nor a setting')
    }
  }
})

t.test('the gateway says so, and does not start', { skip }, async (t) => {
  const { pooler } = await pooled(t, { pool_mode: 'transaction' })
  const settings = { MCP_PROXY_DATABASE_URL: pooler.url, MCP_PROXY_KEY_PASSPHRASE: 'of all' }
  await t.rejects(testGateway(t, { settings }), {
    message: /^the database cannot be opened: MCP_PROXY_DATABASE_URL leads to a connection pooler/,
  })
})

t.test('a pooler that begins to share sessions gets no row more', { skip }, async (t) => {
  const { direct, pooler } = await pooled(t, { pool_mode: 'session' })
  const { ledger } = await replica(t, pooler.url)
  await ledger.commit({ entries: [entry()] })
  await pooler.restart({ pool_mode: 'transaction' })
  const commit = () =>
    ledger.commit({ entries: [entry()] }).then(
      () => 'it was stored',
      (error: Error) => error.message,
    )
  t.match(await eventually(commit, (said) => NO_SESSION.test(said)), NO_SESSION)
  t.same((await raw(direct, LOCKS)).rows, [])
  await pooler.restart({ pool_mode: 'session' })
  t.equal(await eventually(commit, (said) => said === 'it was stored'), 'it was stored')
})

t.test('who was refused by a pooler keeps none of its connections', { skip }, async (t) => {
  const { pooler } = await pooled(t, { pool_mode: 'transaction', max_client_conn: '8' })
  const pool = readingPool(pooler.url, () => {})
  for (let n = 0; n < 20; n += 1) await t.rejects(pool.query('select 1'), { message: NO_SESSION })
  await pool.end()
})
