import { createHash, X509Certificate } from 'node:crypto'
import { cp, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import t, { type Test } from 'tap'
import { openDatabase } from '../../../../db/engine.ts'
import { hashOf, leafOf } from '../../../../db/ledger/record/leaf.ts'
import { SQLITE_MIGRATIONS } from '../../../../db/sqlite/migrations.ts'
import { skipWithoutFile } from '../../../support/db/engine.ts'
import { recomputed } from '../../../support/db/history.ts'
import { CHAT, type Identity, scratch, testGateway } from '../../../support/gateway.ts'

const CHAT_PATH = '/v1/chat/completions'
const AT = '2026-01-01T00:00:00.000Z'

interface Older {
  readonly data: string
  readonly bot: Identity
}

/** A data directory as the version before has left it: an agent that calls, a user, and rows of version 1. */
async function olderDirectory(t: Test, rows: number): Promise<Older> {
  const before = await testGateway(t, { ownCa: true })
  const bot = await before.enroll('bot', ['llm.chat'])
  await before.close(0)
  const data = join(await scratch(t), 'data')
  await mkdir(data, { mode: 0o700 })
  await cp(join(before.settings.dataDir, 'ca'), join(data, 'ca'), { recursive: true })
  await cp(join(before.settings.dataDir, 'key-passphrase'), join(data, 'key-passphrase'))
  const connection = new SQLite(join(data, 'sallyport.db'))
  const db = new Kysely({ dialect: new SqliteDialect({ database: connection }) })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...SQLITE_MIGRATIONS }) } })
  const { error } = await migrator.migrateTo('0049_list_indexes')
  if (error !== undefined) throw error
  const der = new X509Certificate(bot.cert).raw
  const insert = (table: string, columns: Record<string, string | number>) => {
    const names = Object.keys(columns)
    connection
      .prepare(`insert into ${table} (${names.join(', ')}) values (${names.map(() => '?').join(', ')})`)
      .run(...Object.values(columns))
  }
  const common = { enrollment_method: 'minted', created_at: AT, updated_at: AT, capabilities: '["llm.chat"]' }
  insert('internal_agents', { agent_id: bot.id, name: 'bot', authority_revision: 4, ...common })
  insert('local_user_principals', { principal_id: 'acme::user::zoe', name: 'zoe', ...common })
  insert('certificate_pins', {
    thumbprint: createHash('sha256').update(der).digest('hex'),
    ...{
      principal_type: 'agent',
      principal_id: bot.id,
      not_before: AT,
      not_after: '2999-01-01T00:00:00.000Z',
      created_at: AT,
    },
  })
  for (let seq = 1, previous = '0'.repeat(64); seq <= rows; seq += 1) {
    const row = {
      ...{
        stream: 'main',
        seq,
        recorded_at: AT,
        request_id: `req_${seq}`,
        principal_id: bot.id,
        principal_type: 'agent',
      },
      ...{ action: 'egress_llm_chat', status: 'denied', tool: null, model: 'gpt-5', provider: null },
      ...{ cert_thumbprint: 'ab'.repeat(32), dpop_jkt: null, detail: '{"reason":"capability_missing"}' },
      ...{ config_digest: 'cd'.repeat(32), version: '0.6.3', prev_hash: previous },
    }
    const leaf = leafOf(row, 1)
    previous = hashOf(leaf)
    const stored: Record<string, string | number> = { leaf, row_hash: previous }
    for (const [name, value] of Object.entries(row)) if (value !== null) stored[name] = value
    insert('audit_log', stored)
  }
  connection.close()
  return { data, bot }
}

/** What recomputing every decision of the gateway's ledger comes to. */
async function recomputedIn(databaseUrl: string) {
  const database = await openDatabase(databaseUrl)
  const rows = await database.kysely.selectFrom('audit_log').selectAll().orderBy('seq').execute()
  await database.close()
  return recomputed(rows)
}

for (const rows of [0, 3]) {
  await t.test(
    `a ledger of before with ${rows} rows goes on: they verify, and are counted as not recomputable`,
    { skip: skipWithoutFile },
    async (t) => {
      const { data, bot } = await olderDirectory(t, rows)
      const start = () => testGateway(t, { ownCa: true, settings: { MCP_PROXY_DATA_DIR: data } })
      const gateway = await start()
      t.equal(
        (await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })).status,
        200,
        'who could call still can',
      )
      const { json: user } = await gateway.admin('GET', '/v1/admin/users/acme::user::zoe')
      t.match(user.principal_ref, /^usr_[a-z2-7]{26}$/)
      const snapshots = await gateway.rows({ action: 'authority.snapshot', order: 'asc' })
      t.match(
        snapshots.map(({ detail }) => detail),
        [
          { subject: bot.id, revision: 4, capabilities: ['llm.chat'], is_active: true, bindings: [] },
          { subject: user.principal_ref, revision: 1, thumbprints: [], dpop_jkts: [] },
        ],
      )
      await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities: [] })
      t.equal((await gateway.call(bot, 'POST', CHAT_PATH, { body: CHAT })).status, 403)
      await gateway.close(0)
      t.match(await recomputedIn(gateway.settings.databaseUrl), {
        recomputed: 2,
        disagree: 0,
        not_recomputable: rows === 0 ? {} : { 'of version 1': rows },
      })
      const again = await start()
      t.equal((await again.rows({ action: 'authority.snapshot' })).length, 2, 'it is written once')
      await again.close(0)
      // As a crash before the end leaves it.
      const connection = new SQLite(join(data, 'sallyport.db'))
      connection.exec(`delete from settings where key = 'record_version'`)
      connection.close()
      const third = await start()
      t.equal(
        (await third.rows({ action: 'authority.snapshot' })).length,
        2,
        'who was written down is not again',
      )
    },
  )
}
