import { chmodSync, cpSync, globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { unseal } from '../../../certs/authority/key-store.ts'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { SEALED_COLUMNS } from '../../../proxy/boot/rotate-passphrase.ts'
import { authorityRemaker } from '../../../proxy/boot/shared-authority.ts'
import { VERSION } from '../../../proxy/boot/version.ts'
import { raw } from '../../support/db/postgres/replica.ts'
import { twoStages } from '../../support/db/postgres/stages.ts'
import { tokenFor } from '../../support/dpop.ts'
import { scratch, type TestGateway, testGateway } from '../../support/gateway.ts'
import { killedVerb } from '../../support/killed-at.ts'
import { sweepPlaces, WHOLE_SWEEP } from '../../support/sweep-places.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const ROOT = join(import.meta.dirname, '../../..')
const SEALED = /sallyport-sealed\.[\w.-]+/g
const NEW = 'a passphrase that nobody has had before'
const TOKENS = { MCP_PROXY_PUBLIC_URLS: 'https://sallyport.test' }

/** The settings of a gateway on SQLite, in a directory of its own. */
const settingsIn = (root: string): Record<string, string> => ({
  ...TOKENS,
  MCP_PROXY_DATA_DIR: join(root, 'data'),
  // In a run of tests on PostgreSQL they share one.
  MCP_PROXY_KEY_PASSPHRASE: '',
  MCP_PROXY_DATABASE_URL: `sqlite:${join(root, 'data/sallyport.db')}`,
})

/** The settings of gateways on one PostgreSQL database. */
const databaseOf = (url: string) => ({
  MCP_PROXY_DATABASE_URL: url,
  MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
})

/** The directory of a gateway that has had an agent, another key of each kind and a rehearsed CA, and is stopped. */
async function stopped(t: Test) {
  const root = await scratch(t)
  const gateway = await testGateway(t, { settings: settingsIn(root), ownCa: true })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await tokenFor(gateway, bot, null)
  for (const key of ['signing-key', 'audit-key'])
    t.equal((await gateway.admin('POST', `/v1/admin/${key}/rotate`)).status, 200)
  await gateway.close(0)
  const env = { ...settingsIn(root), MCP_PROXY_PLUGINS_DIR: gateway.pluginsDir }
  return { root, bot, env, ca: gateway.settings.dataDir }
}

/** Every sealed text below a data directory: of all columns of all tables, and of all files. */
function sealedIn(root: string): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>()
  const database = new Sqlite(join(root, 'data/sallyport.db'), { readonly: true })
  const tables = database.prepare("select name from sqlite_master where type = 'table'").pluck().all()
  for (const table of tables as string[]) {
    for (const { name } of database.pragma(`table_info("${table}")`) as { name: string }[]) {
      const texts = database
        .prepare(`select "${name}" from "${table}" where cast("${name}" as text) like '%sallyport-sealed.%'`)
        .pluck()
        .all() as string[]
      const sealed = texts.flatMap((text) => String(text).match(SEALED) ?? [])
      if (sealed.length > 0) found.set(`${table}.${name}`, sealed)
    }
  }
  database.close()
  for (const file of globSync('data/**/*.sealed', { cwd: root }))
    found.set(file, readFileSync(join(root, file), 'utf8').match(SEALED) ?? [])
  return found
}

const opens = (sealed: string, passphrase: string): boolean => {
  try {
    unseal(sealed, passphrase)
    return true
  } catch {
    return false
  }
}
const passphraseOf = (root: string): string => readFileSync(join(root, 'data/key-passphrase'), 'utf8').trim()

await t.test('everything is sealed anew, with a row, and the gateway goes on as it was', async (t) => {
  const { root, bot, env } = await stopped(t)
  const [before, issuer] = [passphraseOf(root), readFileSync(join(root, 'data/ca/root.crt'), 'utf8')]
  const ran = await sallyport(['rotate-passphrase'], env)
  t.match(ran, { code: 0, err: '', out: /sealed \d+ keys.*\n.*key-passphrase: back it up\n$/ })
  const after = passphraseOf(root)
  t.not(after, before)
  for (const [place, texts] of sealedIn(root))
    for (const text of texts) t.same([opens(text, before), opens(text, after)], [false, true], place)

  const again = await testGateway(t, { settings: settingsIn(root), ownCa: true })
  t.equal((await again.call(bot, 'GET', '/v1/models')).status, 200)
  t.equal((await tokenFor(again, bot, null)).status, 200)
  t.equal((await again.admin('POST', '/v1/admin/signing-key/rotate')).status, 200)
  t.equal(readFileSync(join(root, 'data/ca/root.crt'), 'utf8'), issuer, 'the CA is the same')
  const rows = await again.rows({ action: 'admin.passphrase_rotated' })
  t.match(rows, [{ status: 'success', principal_id: /^socket:/, detail: { via: 'socket' } }])
  t.match(await sallyport(['rotate-passphrase'], env), { code: 1, err: /another Sallyport is running/ })
  await again.close(0)
  t.match(await sallyport(['verify', join(root, 'data/sallyport.db'), '--authority'], env), { code: 0 })

  const file = join(root, 'new')
  writeFileSync(file, `${NEW}\n`, { mode: 0o600 })
  t.match(await sallyport(['rotate-passphrase', '--new', file], env), { code: 0 })
  t.equal(passphraseOf(root), NEW)
})

await t.test('a process with the passphrase before makes no CA, nor over another step', async (t) => {
  const { root, env } = await stopped(t)
  const before = passphraseOf(root)
  t.match(await sallyport(['rotate-passphrase'], env), { code: 0 })
  const database = await openDatabase(settingsIn(root).MCP_PROXY_DATABASE_URL ?? '')
  t.teardown(() => database.close())
  const made = (passphrase: string) =>
    authorityRemaker(database, '', passphrase)({ organisation: 'initech' }, Date.now())
  await t.rejects(made(before), { reason: 'conflict', message: /Restart it with the new one/ })
  const [overtaken, last] = [await made(passphraseOf(root)), await made(passphraseOf(root))]
  const ledger = await openLedger({ database, version: VERSION })
  t.teardown(() => ledger.close())
  await ledger.commit({ statements: last.statements, entries: [] })
  await t.rejects(ledger.commit({ statements: overtaken.statements, entries: [] }), { code: 'conflict' })
})

await t.test('what is sealed stands in one list, and who seals is known', async (t) => {
  const { root, env } = await stopped(t)
  t.match(await sallyport(['rotate-passphrase'], env), { code: 0 }, 'the CA is in the database from now on')
  const again = await testGateway(t, { settings: settingsIn(root), ownCa: true })
  await again.close(0)
  const columns = SEALED_COLUMNS.map(({ table, column }) => `${table}.${column}`)
  const files = ['intermediate', 'root', 'server'].map((name) => `data/ca/${name}.key.sealed`)
  t.same([...sealedIn(root).keys()].toSorted(), [...columns, ...files].toSorted())
  // A new one of these seals into a column above, or into a new one that belongs into SEALED_COLUMNS.
  const sealing = globSync('{certs,db,plugins,proxy,scripts}/**/*.ts', { cwd: ROOT }).filter((file) =>
    /\bseal\b.*key-store\.ts'/.test(readFileSync(join(ROOT, file), 'utf8')),
  )
  t.same(sealing.toSorted(), [
    'certs/authority/files.ts',
    'proxy/auth/subject-keys.ts',
    'proxy/auth/token-keys.ts',
    'proxy/boot/rotate-passphrase.ts',
    'proxy/proofs/log-keys.ts',
  ])
})

await t.test('what is refused changes nothing', async (t) => {
  const { root, env } = await stopped(t)
  const before = sealedIn(root)
  const file = (text: string): string => {
    const path = join(root, `new-${text.length}`)
    writeFileSync(path, text, { mode: 0o600 })
    return path
  }
  const good = file(NEW)
  const refused: readonly (readonly [string, readonly string[], Record<string, string>, RegExp])[] = [
    ['a wrong one', ['--new', good], { MCP_PROXY_KEY_PASSPHRASE: 'wrong' }, /the passphrase is wrong/],
    ['an empty new one', ['--new', file(' \n')], {}, /has 0 characters, and at least 16 are needed/],
    ['a short new one', ['--new', file('short')], {}, /has 5 characters/],
    ['the same', ['--new', file(passphraseOf(root))], {}, /is the one in force/],
    ['no file', ['--new', join(root, 'nothing')], {}, /ENOENT/],
    ['of the environment', [], { MCP_PROXY_KEY_PASSPHRASE: passphraseOf(root) }, /name it with --new FILE/],
    ['no database', [], { MCP_PROXY_DATABASE_URL: `sqlite:${root}/none.db` }, /there is no database at/],
    ['a word', ['--old', 'x'], {}, /Unknown option/],
  ]
  for (const [what, args, more, err] of refused) {
    const ran = await sallyport(['rotate-passphrase', ...args], { ...env, ...more })
    t.match(ran, { code: 1, out: '', err }, what)
    t.same(sealedIn(root), before, what)
  }
  chmodSync(good, 0o644)
  t.match(await sallyport(['rotate-passphrase', '--new', good], env), { code: 1, err: /run chmod 600/ })
  t.same(sealedIn(root), before)
})

const isRoot = process.getuid?.() === 0 ? 'root may write everywhere' : false
await t.test('a directory that cannot be written is refused before anything', { skip: isRoot }, async (t) => {
  const { root, env } = await stopped(t)
  chmodSync(join(root, 'data/ca'), 0o500)
  t.match(await sallyport(['rotate-passphrase'], env), { code: 1, err: /ca cannot be written: nothing/ })
  chmodSync(join(root, 'data/ca'), 0o700)
})

/** It writes some twenty times; a whole sweep tries each. */
const KILLED_APART = 6
t.setTimeout(WHOLE_SWEEP ? 3_600_000 : 300_000)

await t.test('killed at any write it opens with the old passphrase or the new, and goes on', async (t) => {
  const { root: original, env } = await stopped(t)
  const old = passphraseOf(original)
  let killed = 0
  for (const nth of sweepPlaces(KILLED_APART)) {
    const root = await scratch(t)
    cpSync(join(original, 'data'), join(root, 'data'), { recursive: true })
    const [file, at] = [join(root, 'new'), join(root, 'kill-at')]
    writeFileSync(file, NEW, { mode: 0o600 })
    writeFileSync(at, String(nth))
    const own = { ...env, ...settingsIn(root) }
    const isKilled = (await killedVerb(['rotate-passphrase', '--new', file], own, at)) === null
    const sealed = [...sealedIn(root)].flatMap(([place, texts]) => (place.startsWith('data/') ? [] : texts))
    const [byOld, byNew] = [old, NEW].map((one) => sealed.every((text) => opens(text, one)))
    t.not(byOld, byNew, `${nth}: one of them opens all of the database`)
    // What starts on it takes the one that opens, by itself; and so does the second run.
    if (killed % 4 === 0) {
      const gateway: TestGateway = await testGateway(t, { settings: settingsIn(root), ownCa: true })
      await gateway.close(0)
      t.equal(passphraseOf(root), byNew ? NEW : old, `${nth}: the start knows`)
    }
    if (passphraseOf(root) !== NEW) {
      const out = byNew ? /^completed/ : /^sealed \d+ keys/
      t.match(await sallyport(['rotate-passphrase', '--new', file], own), { code: 0, out }, `${nth}`)
    }
    t.equal(passphraseOf(root), NEW)
    const files = [...sealedIn(root)].filter(([place]) => place.startsWith('data/'))
    for (const [place, texts] of files)
      for (const text of texts) t.ok(opens(text, NEW), `${nth}: ${relative(root, place)}`)
    if (!isKilled) break
    killed += 1
  }
  t.ok(killed > 1, `it was killed ${killed} times`)
})

await t.test(
  'on PostgreSQL gateways go on with what they have opened, and follow at their next start',
  async (t) => {
    const { url, one, other } = await twoStages(t, { settings: TOKENS })
    const third = await testGateway(t, { settings: { ...TOKENS, ...databaseOf(url) }, ownCa: true })
    const gateways = [one, other, third]
    const bot = await one.enroll('bot', ['llm.chat'])
    const root = await scratch(t)
    const file = join(root, 'new')
    writeFileSync(file, NEW, { mode: 0o600 })
    mkdirSync(join(root, 'data'), { mode: 0o700 })
    const env = {
      ...databaseOf(url),
      MCP_PROXY_DATA_DIR: join(root, 'data'),
      MCP_PROXY_PLUGINS_DIR: one.pluginsDir,
    }
    t.match(
      await sallyport(['rotate-passphrase', '--new', file], {
        ...env,
        MCP_PROXY_KEY_PASSPHRASE: 'not this one',
      }),
      {
        code: 1,
        err: /the passphrase is wrong/,
      },
    )
    const at = join(root, 'kill-at')
    for (const nth of [1, 2]) {
      writeFileSync(at, String(nth))
      t.equal(await killedVerb(['rotate-passphrase', '--new', file], env, at), null, 'it is killed')
    }
    t.match(await sallyport(['rotate-passphrase', '--new', file], env), {
      code: 0,
      out: /give every gateway the new passphrase/,
    })
    t.match(await sallyport(['rotate-passphrase', '--new', file], env), { code: 0, out: /^completed/ })

    for (const gateway of gateways) {
      t.equal((await tokenFor(gateway, bot, null)).status, 200)
      for (const key of ['signing-key', 'audit-key'])
        t.match(await gateway.admin('POST', `/v1/admin/${key}/rotate`), {
          status: 409,
          text: /Restart it with the new one/,
        })
    }
    const sealed = await raw(
      url,
      'select sealed_key from signing_keys union select sealed_key from audit_keys',
    )
    for (const { sealed_key: text } of sealed.rows) t.ok(opens(String(text), NEW))

    const settings = { ...databaseOf(url), MCP_PROXY_DATA_DIR: third.settings.dataDir }
    await third.close(0)
    await t.rejects(testGateway(t, { settings, ownCa: true }), /the passphrase is wrong/)
    const followed = await testGateway(t, {
      settings: { ...settings, ...TOKENS, MCP_PROXY_KEY_PASSPHRASE: NEW },
      ownCa: true,
    })
    t.equal((await tokenFor(followed, bot, null)).status, 200)
    t.equal((await followed.admin('POST', '/v1/admin/signing-key/rotate')).status, 200)
    for (const name of ['root', 'intermediate', 'server'])
      t.ok(opens(readFileSync(join(followed.settings.dataDir, `ca/${name}.key.sealed`), 'utf8'), NEW), name)
    t.equal((await one.rows({ action: 'admin.passphrase_rotated' })).length, 1)
  },
)
