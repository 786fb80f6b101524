import { rmSync, writeFileSync } from 'node:fs'
import { appendFile, rename } from 'node:fs/promises'
import { Agent } from 'node:https'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { listRows } from '../../db/ledger/read/read.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { openSqliteDatabase } from '../../db/sqlite/database.ts'
import { AnonymousRefusals } from '../../plugins/audit/anonymous.ts'
import { recordAnonymousRefusals } from '../../proxy/tasks/tend-ledger.ts'
import { skipWithoutFile } from '../support/db/engine.ts'
import { ADMIN_SECRET, ask, CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'
import { lockDatabase } from '../support/locker.ts'
import { environment, startProcess } from '../support/process.ts'
import { eventually, settledCalls } from '../support/settled.ts'
import { smallDisk, withoutTmpfs } from '../support/small-disk.ts'
import { completion } from '../support/upstream.ts'

const PATH = '/v1/chat/completions'

const chat = (gateway: TestGateway, who: Identity) => gateway.call(who, 'POST', PATH, { body: CHAT })
const ready = (gateway: TestGateway) => gateway.call(null, 'GET', '/ready')
const fileOf = ({ settings }: TestGateway): string => settings.databaseUrl.replace('sqlite:', '')

/** While the ledger cannot be written: nothing is dispatched, granted, or refused for another reason. */
async function failsClosed(t: Test, gateway: TestGateway, bot: Identity, nobody: Identity): Promise<void> {
  const dispatched = gateway.upstream.seen.length
  for (const [name, who] of [
    ['a grant', bot],
    ['a denial (F-24)', nobody],
  ] as const) {
    const answer = await chat(gateway, who)
    t.match(
      answer,
      { status: 503, json: { reason: 'audit_unavailable', error: { type: 'overloaded_error' } } },
      name,
    )
    t.notOk(answer.headers['audit-receipt'], 'and no receipt')
  }
  t.equal(gateway.upstream.seen.length, dispatched, 'nothing was dispatched')
  const created = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'late' })
  t.match(created, { status: 503, json: { reason: 'audit_unavailable' } }, 'an admin write')
  t.match(await ready(gateway), { status: 503, json: { checks: { audit: 'failed' } } })
  t.equal((await gateway.call(null, 'GET', '/health')).status, 200)
  t.equal(
    (await gateway.admin('GET', '/v1/admin/agents')).json.length,
    2,
    'what needs no row is still answered',
  )
}

/** Ready again by itself, and everything as before. */
async function recovers(t: Test, gateway: TestGateway, bot: Identity): Promise<void> {
  const { status } = await eventually(
    () => ready(gateway),
    (answer) => answer.status === 200,
  )
  t.equal(status, 200, 'ready by itself')
  t.equal((await chat(gateway, bot)).status, 200)
  t.equal((await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'late' })).status, 201)
}

t.test(
  'F-05 F-24 T10 while another process holds the database, calls are refused; then all is well',
  { skip: skipWithoutFile },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const nobody = await gateway.enroll('nobody', [])
    for (const how of ['begin immediate', 'begin exclusive'] as const) {
      const release = await lockDatabase(t, fileOf(gateway), how)
      const many = await Promise.all(Array.from({ length: 20 }, () => chat(gateway, bot)))
      t.same([...new Set(many.map(({ status }) => status))], [503])
      if (how === 'begin immediate') await failsClosed(t, gateway, bot, nobody)
      await release()
      if (how === 'begin immediate') await recovers(t, gateway, bot)
    }
    t.equal(
      (
        await eventually(
          () => ready(gateway),
          ({ status }) => status === 200,
        )
      ).status,
      200,
    )
    const { allowed } = await settledCalls(gateway)
    t.equal(allowed.length, gateway.upstream.seen.length, 'as many decisions as dispatches')
  },
)

t.test(
  'F-05 outcomes that could not be written are owed, and written afterwards, once each',
  { skip: skipWithoutFile },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const answer = Promise.withResolvers<void>()
    gateway.upstream.answer = async (res, seen) => {
      await answer.promise
      await completion(res, seen)
    }
    const calls = Array.from({ length: 5 }, () => chat(gateway, bot))
    await eventually(
      () => gateway.upstream.seen.length,
      (count) => count === 5,
    )
    const release = await lockDatabase(t, fileOf(gateway))
    answer.resolve()
    t.same(
      (await Promise.all(calls)).map(({ status }) => status),
      Array(5).fill(200),
      'the callers do not wait for them',
    )
    await eventually(
      async () => (await gateway.admin('GET', '/metrics')).text,
      (text) => text.includes('sallyport_audit_owed_outcomes 5'),
    )
    await release()
    const { allowed, ended } = await settledCalls(gateway)
    t.equal(allowed.length, 5)
    t.same(
      ended.map(({ status }) => status),
      Array(5).fill('success'),
    )
  },
)

t.test(
  'F-05 a stop while the database is held ends all the same, and the next start completes the ledger',
  { skip: skipWithoutFile },
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const answer = Promise.withResolvers<void>()
    gateway.upstream.answer = async (res, seen) => {
      await answer.promise
      await completion(res, seen)
    }
    const call = chat(gateway, bot)
    await eventually(
      () => gateway.upstream.seen.length,
      (count) => count === 1,
    )
    const release = await lockDatabase(t, fileOf(gateway))
    answer.resolve()
    await call
    await gateway.close(0)
    await release()
    const { MCP_PROXY_PLUGINS_DIR: _, ...env } = await environment(
      join(gateway.settings.dataDir, '..'),
      gateway.upstream.url,
    )
    const next = startProcess(t, { ...env, MCP_PROXY_PLUGINS_DIR: gateway.pluginsDir })
    await next.ready
    const { ended } = await settledCalls(gateway)
    t.match(ended, [{ status: 'unknown' }])
  },
)

t.test(
  'F-05 those who were refused unknown are counted on while the ledger cannot record them',
  async (t) => {
    const database = await openSqliteDatabase(join(t.testdir({}), 'sallyport.db'))
    const ledger = await openLedger({ database, version: '0' })
    t.teardown(async () => {
      await ledger.close()
      await database.close()
    })
    const anonymous = new AnonymousRefusals(0)
    const record = () =>
      recordAnonymousRefusals({ anonymous, ledger, configDigest: () => 'digest', clock: () => 60_000 })
    anonymous.count('certificate_required')
    const release = await lockDatabase(t, database.file)
    await t.rejects(record(), { code: 'unavailable' })
    anonymous.count('certificate_required')
    await release()
    await record()
    await record()
    const { rows } = await listRows(database.kysely, {})
    t.equal(rows.length, 1)
    t.match(rows, [
      {
        action: 'auth.refused',
        detail: { reason: 'certificate_required', count: 2, since: '1970-01-01T00:00:00.000Z' },
      },
    ])
  },
)

t.test(
  'F-04 a full disk refuses calls and admin writes, and is survived',
  { skip: skipWithoutFile || withoutTmpfs() },
  async (t) => {
    const mount = smallDisk(t, '12m')
    const gateway = await testGateway(t, { settings: { MCP_PROXY_DATA_DIR: join(mount, 'data') } })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const nobody = await gateway.enroll('nobody', [])
    t.equal((await chat(gateway, bot)).status, 200)
    const ballast = join(mount, 'ballast')
    fill(ballast)
    // What the log has room for is still taken; then it is full.
    await eventually(
      () => chat(gateway, bot),
      ({ status }) => status === 503,
    )
    await failsClosed(t, gateway, bot, nobody)
    rmSync(ballast)
    await recovers(t, gateway, bot)
    const { allowed, ended } = await settledCalls(gateway)
    t.equal(ended.length, allowed.length)
    await gateway.close(0)
  },
)

function fill(file: string): void {
  for (const size of [1 << 20, 1 << 12, 1]) {
    try {
      for (;;) writeFileSync(file, Buffer.alloc(size), { flag: 'a' })
    } catch (error) {
      // Full for pieces of this size.
      if (!(error instanceof Error && 'code' in error && error.code === 'ENOSPC')) throw error
    }
  }
}

t.test('F-06 a database that is replaced under the gateway ends it', { skip: skipWithoutFile }, async (t) => {
  const gateway = await testGateway(t, { verify: false })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await chat(gateway, bot)).status, 200)
  await rename(fileOf(gateway), `${fileOf(gateway)}.moved`)
  await appendFile(fileOf(gateway), '')
  t.match(await chat(gateway, bot), { status: 503, json: { reason: 'audit_unavailable' } })
  t.equal(gateway.upstream.seen.length, 1, 'nothing more was dispatched')
  t.match((await gateway.failed).message, /deleted or replaced/)
  t.match(await ready(gateway), { status: 503 })
  t.equal((await chat(gateway, bot)).status, 503, 'for good')
  await gateway.close(0)
})

t.test(
  'F-03 F-06 the process of a poisoned ledger ends with code 1',
  { skip: skipWithoutFile },
  async (t) => {
    const directory = t.testdir({})
    const env = await environment(directory, 'http://127.0.0.1:9')
    const { ready: started, ended } = startProcess(t, env)
    const url = await started
    const file = join(directory, 'data', 'sallyport.db')
    await rename(file, `${file}.moved`)
    const agent = new Agent({ rejectUnauthorized: false })
    const headers = { 'x-admin-secret': ADMIN_SECRET }
    const { status } = await ask(`${url}/v1/admin/agents`, 'POST', {
      agent,
      headers,
      body: { agent_name: 'bot' },
    })
    t.equal(status, 503)
    t.match(await ended, { code: 1, output: /deleted or replaced/ })
  },
)
