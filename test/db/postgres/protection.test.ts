import t from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { protectionOf, withVerifiedTls } from '../../../db/postgres/protection.ts'

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

await t.test('H17: the driver is told verify-full, and everything else of a URL stays as it is', (t) => {
  t.equal(withVerifiedTls(`${FAR}?sslmode=require&options=a`), `${FAR}?sslmode=verify-full&options=a`)
  t.equal(withVerifiedTls(`${FAR}?a=1&sslmode=prefer`), `${FAR}?a=1&sslmode=verify-full`)
  t.equal(withVerifiedTls(`${FAR}?sslmode=disable`), `${FAR}?sslmode=disable`)
  t.equal(withVerifiedTls(FAR), FAR)
  t.end()
})
