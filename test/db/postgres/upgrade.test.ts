import { execFile } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { Agent } from 'node:https'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { archiveRows } from '../../../proxy/archive/archive.ts'
import { openLog } from '../../support/archive.ts'
import { started as startRow } from '../../support/db/history.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { earlierVersion, withoutCommit } from '../../support/earlier-version.ts'
import { ADMIN_SECRET, type Answered, agentOf, ask, type Identity } from '../../support/gateway.ts'
import { environment, startProcess } from '../../support/process.ts'
import { eventually } from '../../support/settled.ts'
import { completion, testUpstream } from '../../support/upstream.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

// The last commit whose newest migration is 0052.
const BEFORE = '88b446548a1f3da3a127acff65d07d6c7df0e5e1'
const PASSPHRASE = 'the passphrase of all replicas'
const CHAT = { model: 'gpt-test', messages: [] }
/** Within what time a gateway serves again whose sessions were ended. ms. */
const BACK_MS = 30_000

const SIGNED_AS_BEFORE =
  'insert into audit_checkpoints select tree, size + 1, place + 1, root, signed_at, signatures from audit_checkpoints limit 1'

/** A gateway of either version. */
interface Version {
  readonly chat: (who: Identity) => Promise<Answered>
  readonly admin: (method: string, path: string, body?: unknown) => Promise<Answered>
  /** Ends it in order. */
  readonly stop: () => Promise<unknown>
}

async function started(t: Test, env: Readonly<Record<string, string>>, root?: string): Promise<Version> {
  const { child, ready, ended } = startProcess(t, env, [], root)
  const url = await ready
  const { text: ca } = await ask(`${url}/pki/ca.crt`, 'GET', {
    agent: new Agent({ rejectUnauthorized: false }),
  })
  const call = async (
    who: Identity | null,
    method: string,
    path: string,
    asked: object,
  ): Promise<Answered> => {
    const agent = agentOf(ca, who)
    try {
      return await ask(url + path, method, { agent, ...asked })
    } finally {
      agent.destroy()
    }
  }
  return {
    chat: (who) => call(who, 'POST', '/v1/chat/completions', { body: CHAT }),
    admin: (method, path, body) =>
      call(null, method, path, { body, headers: { 'x-admin-secret': ADMIN_SECRET } }),
    stop: async () => {
      child.kill('SIGTERM')
      t.match(await ended, { code: 0 })
    },
  }
}

/** The version before serves, then this one beside it, on one database. */
async function sideBySide(t: Test) {
  const root = earlierVersion(BEFORE, join(t.testdir({}), 'before'))
  const upstream = await testUpstream(t)
  upstream.answer = completion
  const url = await (await cluster()).fresh()
  const shared = { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_KEY_PASSPHRASE: PASSPHRASE }
  const environmentOf = async (name: string) => ({
    ...(await environment(join(t.testdirName, name), upstream.url)),
    ...shared,
  })
  const earlier = await started(t, await environmentOf('one'), root)
  const { json } = await earlier.admin('POST', '/v1/admin/agents', {
    agent_name: 'bot',
    capabilities: ['llm.chat'],
  })
  const bot: Identity = { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
  t.equal((await earlier.chat(bot)).status, 200)
  const present = await started(t, await environmentOf('two'))
  const grant = (version: Version, capabilities: readonly string[]) =>
    version.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, { capabilities })
  return { root, url, earlier, present, bot, grant }
}

t.test(
  'the version before and this one serve side by side, and each obeys the other',
  { skip: withoutCommit(BEFORE), timeout: 120_000 },
  async (t) => {
    const { root, url, earlier, present, bot, grant } = await sideBySide(t)
    for (const [by, at] of [
      [present, earlier],
      [earlier, present],
    ] as const) {
      t.equal((await grant(by, [])).status, 200)
      t.match(await at.chat(bot), { status: 403, json: { required_capability: 'llm.chat' } })
      t.equal((await grant(by, ['llm.chat'])).status, 200)
      t.equal((await at.chat(bot)).status, 200)
    }
    const [created] = [
      await present.admin('POST', '/v1/admin/agents', { agent_name: 'new', capabilities: ['llm.chat'] }),
    ]
    t.match(created, { status: 201 })
    const listed = await earlier.admin('GET', '/v1/admin/agents')
    t.equal(listed.json.length, 2, 'what the new one wrote the old one reads')

    // Together, with changes between them: whatever the order, each call is decided and recorded.
    const answers = await Promise.all([
      ...Array.from({ length: 40 }, (_, n) => (n % 2 ? earlier : present).chat(bot)),
      ...Array.from({ length: 6 }, (_, n) => grant(n % 2 ? earlier : present, n % 3 ? ['llm.chat'] : [])),
    ])
    // A call that is overtaken by a change time and again is told to come back.
    const fates = answers.map(({ status, json }) => `${status} ${status < 500 ? '' : json.reason}`.trim())
    t.same(
      fates.filter((fate) => !['200', '403', '412', '503 overloaded'].includes(fate)),
      [],
    )
    const migrate = () =>
      sallyport(['migrate', 'up'], { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_DATA_DIR: t.testdirName })
    const inColumns = async () =>
      (await raw(url, 'select count(*)::int as count from audit_rows where leaf is null')).rows[0].count
    t.match(await migrate(), { code: 0, out: /keep their former form, because gateways are running/ })
    t.equal(await inColumns(), 0, 'no row is there that the version before could not read')
    await earlier.stop()
    await present.stop()
    t.match(
      await sallyport(['verify', url]),
      { code: 0, out: /^whole: / },
      'this version says that it is whole',
    )
    const { rows } = await raw(url, "select count(*)::int as count from audit_rows where status = 'allowed'")
    const { rows: ended } = await raw(
      url,
      "select count(*)::int as count from audit_rows where action = 'egress_llm_chat' and status not in ('allowed', 'denied')",
    )
    t.same(ended, rows, 'and each call has its outcome')
    const { rows: added } = await raw(
      url,
      "select count(*)::int as count from kysely_migration where name > '0053'",
    )
    // One that has started goes on; one that starts sees that a newer one was here.
    const theirs = await promisify(execFile)(process.execPath, [
      join(root, 'scripts/sallyport.ts'),
      'verify',
      url,
    ]).catch((error: { stdout: string; stderr: string }) => error)
    t.match(theirs.stdout + theirs.stderr, added[0].count > 0 ? /whole: |newer version/ : /whole: /)

    t.match(await migrate(), { code: 0, out: /have the form of this version from now on/ })
    t.match(await migrate(), { code: 0, out: '' })
    const { ledger } = await replica(t, url)
    await ledger.commit({ entries: [startRow] })
    t.equal(await inColumns(), 1)
    await t.rejects(raw(url, SIGNED_AS_BEFORE), /a gateway of an earlier version/)
    t.match(await sallyport(['verify', url]), { code: 0, out: /^whole: / }, 'and so do rows of both forms')
  },
)

t.test(
  'one of the version before goes on after its sessions were ended',
  { skip: withoutCommit(BEFORE), timeout: 120_000 },
  async (t) => {
    const { url, earlier, present, bot } = await sideBySide(t)
    await raw(
      url,
      'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    )
    for (const version of [earlier, present]) {
      const { status } = await eventually(
        () => version.chat(bot),
        (answer) => answer.status === 200,
        BACK_MS,
      )
      t.equal(status, 200)
    }
    await earlier.stop()
    await present.stop()
    t.match(await sallyport(['verify', url]), { code: 0 })
  },
)

t.test(
  'rows of the version before are archived by this one, and proven as they were written',
  { skip: withoutCommit(BEFORE), timeout: 180_000 },
  async (t) => {
    const { url, earlier, present, bot } = await sideBySide(t)
    for (let calls = 0; calls < 140; calls += 20)
      await Promise.all(Array.from({ length: 20 }, () => earlier.chat(bot)))
    await earlier.stop()
    await present.stop()
    const env = { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_DATA_DIR: t.testdirName }
    t.match(await sallyport(['migrate', 'up'], env), { code: 0 })
    const { rows } = await raw(url, 'select count(*)::int as leaves from audit_rows where leaf is not null')
    t.ok(rows[0].leaves > 256, `${rows[0].leaves} rows have the form of before`)

    const log = await openLog(t, url, Date.now, PASSPHRASE)
    await log.ledger.commit({ entries: [startRow] })
    await log.sealer.seal()
    const folder = join(t.testdirName, 'archive')
    mkdirSync(folder, { recursive: true })
    const given = {
      ...log,
      folder,
      location: databaseLocation(url),
      authority: { rootPem: '', intermediatePem: '', rotation: null },
      anchors: () => [],
      log: pino({ level: 'silent' }),
    }
    await archiveRows(given, 255, new AbortController().signal)
    const left = await raw(url, 'select count(*)::int as rows from audit_rows where leaf is not null')
    t.ok(left.rows[0].rows <= rows[0].leaves - 250, `${left.rows[0].rows} of them are left`)
    const verified = await sallyport(['verify', url, '--archive', folder])
    t.match(verified, { code: 0, out: /^1 segment: leaves 0 to 255, 256 rows$/m })
  },
)
