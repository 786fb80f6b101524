import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { ENGINE, skipWithoutFile } from '../support/db/engine.ts'
import { raw } from '../support/db/postgres/replica.ts'
import { writeFiles } from '../support/gateway.ts'
import { environment, startProcess } from '../support/process.ts'

const NOWHERE = 'http://127.0.0.1:9'

/** Judged before a database is opened: the same on every engine. */
const beforeDatabase = (name: string, work: (t: Test) => Promise<void>): void =>
  void t.test(name, { skip: skipWithoutFile }, work)

const SETTINGS = 'F-39 threat 36 what cannot be obeyed or trusted stops the boot with one sentence'
beforeDatabase(SETTINGS, async (t) => {
  const directory = t.testdir({ key: 'secret-of-everybody', empty: {} })
  const env = await environment(directory, NOWHERE)
  await chmod(join(directory, 'key'), 0o644)
  const bad = join(directory, 'bad')
  await writeFiles(bad, { '10-pin.yaml': 'plugin: pin\n' }, NOWHERE)
  const refusals: readonly (readonly [string, Record<string, string>, RegExp])[] = [
    [
      'certificate checks switched off',
      { NODE_TLS_REJECT_UNAUTHORIZED: '0' },
      /NODE_TLS_REJECT_UNAUTHORIZED/,
    ],
    ['the lenient parser', { NODE_OPTIONS: '--insecure-http-parser' }, /insecure-http-parser/],
    ['an unknown variable', { MCP_PROXY_LISTNE: 'a' }, /MCP_PROXY_LISTNE.*MCP_PROXY_LISTEN/],
    ['an unknown DPoP mode', { MCP_PROXY_EGRESS_DPOP_MODE: 'of' }, /off, optional or required/],
    ['an empty DPoP mode', { MCP_PROXY_EGRESS_DPOP_MODE: '' }, /off, optional or required/],
    ['a port that is none', { MCP_PROXY_LISTEN: '127.0.0.1:99999' }, /MCP_PROXY_LISTEN/],
    ['an address of somebody else', { MCP_PROXY_LISTEN: '203.0.113.1:0' }, /cannot listen on 203\.0\.113\.1/],
    [
      'a port to share on SQLite',
      { MCP_PROXY_REUSE_PORT: 'true', MCP_PROXY_DATABASE_URL: '' },
      /MCP_PROXY_REUSE_PORT=true needs PostgreSQL/,
    ],
    [
      'PostgreSQL without a passphrase',
      { MCP_PROXY_DATABASE_URL: 'postgres://user:canary@127.0.0.1:9/x' },
      /the database cannot be opened/,
    ],
    [
      'a secret that everybody can read',
      { MCP_PROXY_ADMIN_SECRET: '', MCP_PROXY_ADMIN_SECRET_FILE: join(directory, 'key') },
      /MCP_PROXY_ADMIN_SECRET_FILE/,
    ],
    ['no plugins', { MCP_PROXY_PLUGINS_DIR: join(directory, 'empty') }, /empty/],
    ['mandatory plugins missing', { MCP_PROXY_PLUGINS_DIR: bad }, /capability/],
  ]
  await Promise.all(
    refusals.map(async ([name, change, sentence], i) => {
      const own = { ...env, MCP_PROXY_DATA_DIR: join(directory, `data-${i}`), ...change }
      const { code, output } = await startProcess(t, own).ended
      t.equal(code, 1, name)
      t.match(output, sentence, name)
      t.notMatch(output, /canary|secret-of-everybody|\n {4}at /, `${name}: no secret and no stack`)
      t.notMatch(output, '"msg":"ready"')
    }),
  )
  const { child, ready, ended } = startProcess(t, env)
  await ready
  child.kill('SIGTERM')
  t.match(await ended, { code: 0 }, 'and without them it starts')
})

t.test(
  'F-39 a data directory that cannot be trusted stops the boot with one sentence',
  { skip: skipWithoutFile },
  async (t) => {
    const directory = t.testdir({})
    const env = await environment(directory, NOWHERE)
    const data = join(directory, 'data')
    const first = startProcess(t, env)
    await first.ready

    const second = await startProcess(t, env).ended
    t.match(second, { code: 1, output: /another Sallyport is running on the data directory/ })
    const elsewhere = join(directory, 'elsewhere')
    await mkdir(elsewhere, { mode: 0o700 })
    const beside = {
      ...env,
      MCP_PROXY_DATA_DIR: elsewhere,
      MCP_PROXY_DATABASE_URL: `sqlite:${join(data, 'sallyport.db')}`,
    }
    t.match(
      await startProcess(t, beside).ended,
      { code: 1, output: /another process writes the audit ledger/ },
      'also where only the database is shared',
    )

    first.child.kill('SIGTERM')
    t.match(await first.ended, { code: 0, signal: null })
    for (const name of [
      'ca/intermediate.key.sealed',
      'ca/root.key.sealed',
      'ca/server.key.sealed',
      'key-passphrase',
    ]) {
      const path = join(data, name)
      await chmod(path, 0o644)
      const { code, output } = await startProcess(t, env).ended
      t.equal(code, 1, name)
      t.match(output, name, 'the file is named')
      await chmod(path, 0o600)
    }
    t.match(await startProcess(t, { ...env, MCP_PROXY_KEY_PASSPHRASE: 'not-the-passphrase' }).ended, {
      code: 1,
    })
    t.match(await startProcess(t, { ...env, MCP_PROXY_ORG: 'other' }).ended, {
      code: 1,
      output: /organisation acme/,
    })

    const db = new SQLite(join(data, 'sallyport.db'))
    db.prepare('insert into kysely_migration (name, timestamp) values (?, ?)').run(
      '9999_from_the_future',
      '2099',
    )
    db.close()
    t.match(await startProcess(t, env).ended, { code: 1, output: /newer version.*9999_from_the_future/ })
    await writeFile(join(data, 'sallyport.db'), 'this is no database')
    t.match(await startProcess(t, env).ended, { code: 1 })
  },
)

const skip = ENGINE === 'postgres' ? false : 'the test above says it of a SQLite file'

t.test(
  'F-39 nor does it start on a database on PostgreSQL that is another one than it was told',
  { skip },
  async (t) => {
    const directory = t.testdir({})
    const env = await environment(directory, NOWHERE)
    const first = startProcess(t, env)
    await first.ready
    t.match(await startProcess(t, env).ended, {
      code: 1,
      output: /another Sallyport is running on the data directory/,
    })
    first.child.kill('SIGTERM')
    t.match(await first.ended, { code: 0, signal: null })
    const elsewhere = { ...env, MCP_PROXY_DATA_DIR: join(directory, 'elsewhere') }
    for (const own of [env, elsewhere]) {
      const wrong = { ...own, MCP_PROXY_KEY_PASSPHRASE: 'not-the-passphrase' }
      t.match(await startProcess(t, wrong).ended, { code: 1 })
      const other = { ...own, MCP_PROXY_ORG: 'other' }
      t.match(await startProcess(t, other).ended, { code: 1, output: /organisation acme/ })
    }
    const { MCP_PROXY_DATABASE_URL: url = '' } = env
    await raw(url, "insert into kysely_migration (name, timestamp) values ('9999_from_the_future', '2099')")
    t.match(await startProcess(t, env).ended, { code: 1, output: /newer version.*9999_from_the_future/ })
  },
)

const WATCHED = 'under node --watch it starts on an empty directory and stops when told (make dev)'
beforeDatabase(WATCHED, async (t) => {
  const env = await environment(t.testdir({}), NOWHERE)
  const { child, ready, ended } = startProcess(t, env, ['--watch'])
  t.match(await ready, /^https:/, 'though Node reports what the ledger thread imports among its messages')
  child.kill('SIGTERM')
  t.notMatch((await ended).output, /sallyport: stopping:|Restarting/)
})
