import type { KeyObject } from 'node:crypto'
import { chownSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { leafConstraints } from '../../../certs/authority/builder.ts'
import { databaseLocation, openDatabase } from '../../../db/engine.ts'
import { driverTls, protectionOf, tlsFilesFault } from '../../../db/postgres/protection.ts'
import { freePort } from '../../../scripts/free-port.ts'
import { caExtensions, DAY_MS, type OddCertificate, odd } from '../../support/certs/made.ts'
import { databaseOf, makeCluster } from '../../support/db/postgres/cluster.ts'
import { scratch } from '../../support/gateway.ts'
import { environment, startProcess } from '../../support/process.ts'

const keyText = (key: KeyObject): string => String(key.export({ type: 'pkcs8', format: 'pem' }))
const FAR = 'postgres://gateway:secret@db.example/sallyport'

await t.test('H17: each sslmode of libpq is TLS that is verified, or says that it is plain text', (t) => {
  for (const mode of ['allow', 'prefer', 'require', 'verify-ca', 'verify-full'])
    t.match(protectionOf(`${FAR}?sslmode=${mode}`, {}), { sslmode: mode, encrypted: true, local: false })
  t.match(protectionOf(`${FAR}?sslmode=disable`, {}), { encrypted: false, local: false })
  t.match(protectionOf(FAR, {}), { sslmode: null, encrypted: false, local: false })
  t.match(protectionOf(FAR, { PGSSLMODE: 'require' }), { sslmode: 'require', encrypted: true })
  t.match(protectionOf(`${FAR}?sslmode=disable`, { PGSSLMODE: 'require' }), { encrypted: false })
  t.match(protectionOf(`${FAR}?sslrootcert=/ca.pem`, {}), { sslmode: null, encrypted: true })
  t.end()
})

await t.test(
  'H17: a misspelt sslmode, and what would verify less, is refused by name and without the URL',
  (t) => {
    for (const [query, message] of [
      ['sslmode=verify-ful', /sslmode="verify-ful" is not supported/],
      ['sslmode=', /sslmode="" is not supported/],
      ['sslmode=VERIFY-FULL', /is not supported: write verify-full or disable/],
      ['sslmode=no-verify', /is not supported: write verify-full or disable/],
      ['sslmode=verify-full&sslmode=disable', /has sslmode twice/],
      ['ssl=no-verify', /ssl is not supported/],
      ['ssl=true', /ssl is not supported/],
      ['sslmode=require&uselibpqcompat=true', /uselibpqcompat is not supported/],
      ['sslmode=disable&sslrootcert=/ca.pem', /contradict/],
      // Each of these was plain text without a word.
      ['SSLMODE=verify-full', /"SSLMODE" is not supported: leave it out, and write sslmode=verify-full/],
      ['sslMode=require', /"sslMode" is not supported/],
      ['ssl_mode=require', /"ssl_mode" is not supported/],
      ['tls=true', /"tls" is not supported/],
      ['sslnegotiation=direct', /sslnegotiation=direct means nothing without TLS/],
      ['channel_binding=require', /channel_binding=require means nothing without TLS/],
      ['sslmode=disable&channel_binding=require', /means nothing without TLS: write sslmode=verify-full/],
      ['sslmode=require&sslcrl=/crl.pem', /"sslcrl" is not supported/],
      ['sslmode=verify-full&sslrootcert=system', /sslrootcert=system is not supported: leave it out/],
    ] as const) {
      t.throws(() => protectionOf(`${FAR}?${query}`, {}), { message }, query)
      t.throws(
        () => databaseLocation(`${FAR}?${query}`),
        { message: /^(?!.*secret)/ },
        'without the password',
      )
    }
    t.throws(() => protectionOf(FAR, { PGSSLMODE: 'no-verify' }), {
      message: /^PGSSLMODE="no-verify" is not supported/,
    })
    t.end()
  },
)

await t.test(
  'a URL that cannot be read as it was meant is told by its cause, and without the password',
  (t) => {
    for (const [url, message] of [
      ['u:se#cret@h/db', /has "#" .* write %23$/],
      ['u:12#cret@h/db', /has "#" .* write %23$/],
      ['u:se?cret@h/db', /has "\?" .* write %3F$/],
      ['u:12?cret@h/db', /has "\?" .* write %3F$/],
      ['u:se/cret@h/db', /has "\/" .* write %2F$/],
      ['u:12/cret@h/db', /has "\/" .* write %2F$/],
      ['u:secret@h1,h2/db', /several hosts: name one/],
      ['u:secret@h1:5432,h2:5432/db', /several hosts: name one/],
      ['u:secret@/db?host=h1,h2', /several hosts: name one/],
      ['u:secret@h:port/db', /is its port a number\?$/],
    ] as const)
      for (const scheme of ['postgres', 'postgresql']) {
        const message_ = new RegExp(`^(?!.*cret)MCP_PROXY_DATABASE_URL .*${message.source}`)
        t.throws(() => protectionOf(`${scheme}://${url}`, {}), { message: message_ }, url)
      }
    for (const url of [
      ...['u:p@ss@h/db', 'u:p%23@h/db', 'u:p%ss@h/db', 'u@h:1/db?application_name=a@b', 'h:1/db?user=a@b'],
      ...['u:p@%2Frun%2Fpg/db', '/db?host=/run/pg', 'u:p@[::1]:5432/db', 'u:p@h'],
    ])
      t.ok(protectionOf(`postgres://${url}`, {}), url)
    t.end()
  },
)

await t.test('H17: what managed services print is taken', (t) => {
  for (const query of [
    'sslmode=require',
    'sslmode=verify-ca',
    'sslmode=require&channel_binding=require',
    'sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/a.pem&sslkey=/a.key',
    'sslmode=require&sslnegotiation=direct',
    'sslmode=require&options=endpoint%3Dx&pgbouncer=true&target_session_attrs=read-write',
  ])
    t.match(protectionOf(`${FAR}?${query}`, {}), { encrypted: true }, query)
  t.match(protectionOf(`${FAR}?channel_binding=prefer`, {}), { encrypted: false })
  t.end()
})

await t.test('H17: what is on this machine is known as such', (t) => {
  for (const url of [
    'postgres://localhost/x',
    'postgres://u:p@127.0.0.1:5432/x',
    'postgres://[::1]/x',
    'postgres:///x?host=/run/postgresql',
    'postgres://u@/x?host=/run/postgresql',
    'postgres://%2Frun%2Fpostgresql/x',
  ])
    t.ok(protectionOf(url, {}).local, url)
  for (const url of [
    'postgres://localhost.example/x',
    'postgres://127.0.0.1.example/x',
    'postgres://10.0.0.1/x',
  ])
    t.notOk(protectionOf(url, {}).local, url)
  t.end()
})

await t.test('H17: the driver verifies, and everything but TLS of a URL stays as it is', (t) => {
  for (const mode of ['allow', 'require', 'verify-full'])
    t.match(driverTls(`${FAR}?sslmode=${mode}&options=a`), {
      connectionString: `${FAR}?&options=a`,
      ssl: { rejectUnauthorized: undefined, ca: undefined },
    })
  t.same(driverTls(`${FAR}?a=1&sslmode=disable`), { connectionString: `${FAR}?a=1&`, ssl: false })
  t.same(driverTls(FAR), { connectionString: FAR, ssl: false })
  t.match(driverTls(`${FAR}?sslmode=require&sslnegotiation=direct`), {
    connectionString: `${FAR}?&`,
    ssl: {},
    sslnegotiation: 'direct',
  })
  t.match(driverTls(`${FAR}?sslmode=require&sslnegotiation=other`).connectionString, 'sslnegotiation=other')
  t.end()
})

await t.test(
  'a gateway starts by its client certificate on a database that demands one, and says what is wrong with another',
  async (t) => {
    const now = { notBefore: Date.now() - DAY_MS, notAfter: Date.now() + DAY_MS }
    const root = await odd({ name: 'db root', extensions: caExtensions(0), ...now })
    const issue = (name: string, by = root) => odd({ name, extensions: [leafConstraints()], ...now }, by)
    const [server, client, stranger] = [await issue('localhost'), await issue('postgres'), await issue('eve')]
    const foreign = await issue('postgres', await odd({ name: 'x', extensions: caExtensions(0), ...now }))
    const port = await freePort()
    const database = await makeCluster((data) => {
      const files = {
        'ca.crt': root.pem,
        'tls.crt': server.pem,
        'tls.key': keyText(server.key),
        'pg_hba.conf': 'local all all trust\nhostssl all all 127.0.0.1/32 trust clientcert=verify-full\n',
      }
      for (const [name, text] of Object.entries(files)) {
        writeFileSync(join(data, name), text, { mode: 0o600 })
        if (process.getuid?.() === 0) chownSync(join(data, name), 65_534, 65_534)
      }
      return [
        ...['listen_addresses=127.0.0.1', `port=${port}`, 'ssl=on', 'ssl_ca_file=ca.crt'],
        ...['ssl_cert_file=tls.crt', 'ssl_key_file=tls.key'],
      ]
    })
    t.teardown(() => database.stop('fast'))
    const directory = await scratch(t)
    const file = (name: string, text: string): string => {
      writeFileSync(join(directory, name), text, { mode: 0o600 })
      return join(directory, name)
    }
    const damaged = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n'
    const ca = file('ca.crt', `# the database\n${damaged}${root.pem}`)
    const [cert, key] = [file('tls.crt', client.pem), file('tls.key', keyText(client.key))]
    const name = databaseOf(await database.fresh())
    const urlWith = (files: string): string => `postgres://postgres@localhost:${port}/${name}?${files}`
    const env = await environment(directory, 'http://127.0.0.1:9')
    const start = (files: string) =>
      startProcess(t, {
        ...env,
        MCP_PROXY_DATABASE_URL: urlWith(files),
        MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of this test',
      })
    const good = start(`sslmode=verify-full&sslrootcert=${ca}&sslcert=${cert}&sslkey=${key}`)
    await good.ready
    t.match(good.output(), `the block at line 2 cannot be read: take it out of sslrootcert=${ca}`)
    good.child.kill('SIGTERM')
    t.match(await good.ended, { code: 0 })

    const sealed = client.key.export({ type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' })
    const unusable = 'the client certificate of MCP_PROXY_DATABASE_URL cannot be used'
    for (const [what, files, sentence] of [
      [
        'a key that is missing',
        [cert, join(directory, 'away.key')],
        /cannot be read: ENOENT.*away\.key'\. Name one/,
      ],
      ['a key that cannot be read', [cert, directory], /cannot be read: EISDIR/],
      [
        'a sealed key',
        [cert, file('sealed.key', String(sealed))],
        /its key is sealed with a passphrase: write it/,
      ],
      [
        'another’s key',
        [cert, file('eve.key', keyText(stranger.key))],
        /its key is not the one of its certificate/,
      ],
      [
        'no key',
        [cert, file('none.key', 'hello')],
        /its key cannot be read: it must be a private key in PEM/,
      ],
      ['no certificate', [file('none.crt', 'hello'), key], /its certificate cannot be read: it must be PEM/],
    ] as const) {
      const fault = tlsFilesFault(urlWith(`sslcert=${files[0]}&sslkey=${files[1]}`))
      t.match(fault, sentence, what)
      t.match(fault, /MCP_PROXY_DATABASE_URL/, what)
    }
    t.match(tlsFilesFault(urlWith(`sslcert=${cert}`)), /sslcert and sslkey belong together/)
    t.match(tlsFilesFault(urlWith(`sslrootcert=${key}`)), /no CA was read from sslrootcert=/)
    t.match(await start(`sslrootcert=${ca}&sslcert=${cert}&sslkey=${join(directory, 'sealed.key')}`).ended, {
      code: 1,
      output: `${unusable}: its key is sealed`,
    })
    const opened = (files: string) => openDatabase(urlWith(`sslrootcert=${ca}${files}`))
    const by = (one: OddCertificate, as: string): string =>
      `&sslcert=${file(`${as}.crt`, one.pem)}&sslkey=${file(`${as}.key`, keyText(one.key))}`
    for (const [what, files] of [
      ['no client certificate', ''],
      ['the certificate of another user', by(stranger, 'stranger')],
      ['the certificate of another CA', by(foreign, 'foreign')],
    ] as const)
      await t.rejects(opened(files), { message: /^the database cannot be opened: / }, what)
    await t.rejects(openDatabase(urlWith(`sslrootcert=${file('x.crt', foreign.pem)}${by(client, 'own')}`)), {
      message: /self-signed certificate|unable to/,
    })
  },
)
