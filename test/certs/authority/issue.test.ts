import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { issueClientCertificate, issueServerCertificate } from '../../../certs/authority/issue.ts'
import { isForNames } from '../../../certs/authority/server-names.ts'
import { uriNamesOf } from '../../../certs/enrollment/spiffe-id.ts'
import { OID, readCertificate, subjectAttributeOf, thumbprintOf } from '../../../certs/x509/x509.ts'
import { AT, BOT, DAY_MS, madeAuthority } from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

await t.test(
  '§5.1 a client certificate names its SPIFFE id in one URI SAN and the principal in CN',
  async (t) => {
    const { authority, intermediatePem } = await madeAuthority()
    const issued = await issueClientCertificate(authority, BOT, { at: AT, days: 90 })
    const leaf = new X509Certificate(issued.certPem)
    t.same(uriNamesOf(leaf.raw), [BOT.spiffeId])
    t.equal(leaf.subjectAltName, `URI:${BOT.spiffeId}`)
    t.equal(leaf.subject, 'O=acme\nCN=acme::bot')
    t.same(leaf.keyUsage, [OID.clientAuth])
    t.equal(leaf.ca, false)
    t.equal(leaf.serialNumber, issued.serial)
    t.equal(issued.thumbprint, thumbprintOf(leaf.raw))
    t.equal(issued.chainPem, issued.certPem + intermediatePem)
    t.match(issued.privateKeyPem, /^-----BEGIN PRIVATE KEY-----/)
    t.ok(leaf.verify(new X509Certificate(intermediatePem).publicKey))
  },
)

await t.test('a certificate is dated back 60 s and ends after its days', async (t) => {
  const { authority } = await madeAuthority()
  const issued = await issueClientCertificate(authority, BOT, { at: AT + 999, days: 90 })
  t.equal(issued.notBefore, AT - 60_000)
  t.equal(issued.notAfter, AT + 90 * DAY_MS)
  const leaf = new X509Certificate(issued.certPem)
  t.equal(leaf.validFromDate.getTime(), issued.notBefore)
  t.equal(leaf.validToDate.getTime(), issued.notAfter)
})

await t.test(
  'threat 24 no certificate outlives the intermediate, and an ended one issues nothing',
  async (t) => {
    const { authority } = await madeAuthority()
    const late = await issueClientCertificate(authority, BOT, { at: authority.notAfter - DAY_MS, days: 90 })
    t.equal(late.notAfter, authority.notAfter)
    const ended = { at: authority.notAfter, days: 90 }
    await t.rejects(issueClientCertificate(authority, BOT, ended), /issuing CA expired on 2031-10-01/)
    await t.rejects(issueServerCertificate(authority, ['localhost'], ended), /issuing CA expired/)
    await t.rejects(issueClientCertificate(authority, BOT, { at: AT, days: 0 }), /more than 0 days/)
    await t.rejects(issueClientCertificate(authority, BOT, { at: AT, days: Number.NaN }), /more than 0 days/)
  },
)

await t.test(
  'threat 24 an authority signs for no other organisation and no other trust domain',
  async (t) => {
    const { authority } = await madeAuthority()
    const refused = (spiffeId: string, reason: RegExp) =>
      t.rejects(issueClientCertificate(authority, { commonName: 'x', spiffeId }, { at: AT, days: 1 }), reason)
    await refused('spiffe://sallyport.local/other/bot', /issues for the organisation acme, not for other/)
    await refused('spiffe://other.example/acme/bot', /issues for the trust domain sallyport.local/)
    await refused('spiffe://sallyport.local/acme/bot,DNS:evil', /the name/)
    await refused('spiffe://sallyport.local/acme/../bot', /three parts/)
  },
)

await t.test(
  'X.520 a common name of 64 characters is kept, a longer one is left out, never cut',
  async (t) => {
    const { authority } = await madeAuthority()
    const commonNameOf = async (commonName: string) => {
      const { certPem } = await issueClientCertificate(authority, { ...BOT, commonName }, { at: AT, days: 1 })
      return subjectAttributeOf(readCertificate(new X509Certificate(certPem).raw), OID.commonName)
    }
    t.equal(await commonNameOf('a'.repeat(64)), 'a'.repeat(64))
    t.equal(await commonNameOf('a'.repeat(65)), null)
    t.equal(await commonNameOf('acme::bót, CN=root'), 'acme::bót, CN=root')
    await t.rejects(commonNameOf('acme::bot\0'), /control character/)
  },
)

await t.test('a server certificate holds each host name and address once, as what it is', async (t) => {
  const { authority } = await madeAuthority()
  const names = [
    'LOCALHOST',
    'localhost',
    '127.0.0.1',
    '::1',
    '::ffff:1.2.3.4',
    'fe80:0:0::1:2',
    '*.a_b.example',
  ]
  const { certPem } = await issueServerCertificate(authority, names, { at: AT, days: 90 })
  const leaf = new X509Certificate(certPem)
  t.equal(
    leaf.subjectAltName,
    [
      'DNS:localhost',
      'IP Address:127.0.0.1',
      'IP Address:0:0:0:0:0:0:0:1',
      'IP Address:0:0:0:0:0:FFFF:102:304',
      'IP Address:FE80:0:0:0:0:0:1:2',
      'DNS:*.a_b.example',
    ].join(', '),
  )
  t.same(leaf.keyUsage, [OID.serverAuth])
  t.equal(leaf.checkIP('::1'), '::1')
  t.equal(leaf.checkIP('10.0.0.1'), undefined)
  t.equal(leaf.checkHost('localhost'), 'localhost')
  t.equal(isForNames(leaf.raw, names.toReversed()), true)
  t.equal(isForNames(leaf.raw, ['localhost']), false)
})

await t.test('a name that no certificate can carry is refused by its name', async (t) => {
  const { authority } = await madeAuthority()
  const refused = [
    '',
    'a b',
    'a..b',
    'host.',
    '-a',
    'a/b',
    'a,DNS:b',
    'fe80::1%eth0',
    '1.2.3.4:443',
    'münchen.example',
  ]
  for (const name of refused) {
    await t.rejects(
      issueServerCertificate(authority, [name], { at: AT, days: 1 }),
      /neither a host name nor/,
      name,
    )
  }
  await t.rejects(issueServerCertificate(authority, [], { at: AT, days: 1 }), /at least one host name/)
})

await t.test(
  'openssl verifies both kinds, each for its own purpose only',
  { skip: without('openssl') },
  async (t) => {
    const at = Date.now()
    const { authority, rootPem, intermediatePem } = await madeAuthority(at)
    const client = await issueClientCertificate(authority, BOT, { at, days: 90 })
    const server = await issueServerCertificate(authority, ['localhost', '::1'], { at, days: 90 })
    const directory = t.testdir({
      'root.pem': rootPem,
      'intermediate.pem': intermediatePem,
      'client.pem': client.certPem,
      'server.pem': server.certPem,
    })
    const verify = (purpose: string, file: string) =>
      openssl(directory, [
        ...['verify', '-x509_strict', '-purpose', purpose],
        ...['-CAfile', 'root.pem', '-untrusted', 'intermediate.pem', file],
      ])
    t.equal(verify('sslclient', 'client.pem').status, 0)
    t.equal(verify('sslserver', 'server.pem').status, 0)
    t.not(verify('sslserver', 'client.pem').status, 0)
    t.not(verify('sslclient', 'server.pem').status, 0)
    const { text } = openssl(directory, ['x509', '-in', 'client.pem', '-noout', '-text'])
    t.match(text, /Basic Constraints: critical\s+CA:FALSE/)
    t.match(text, /Key Usage: critical\s+Digital Signature\n/)
    t.match(text, /Extended Key Usage: \s+TLS Web Client Authentication\n/)
    t.match(text, /Subject Alternative Name: \s+URI:spiffe:\/\/sallyport.local\/acme\/bot\n/)
    t.match(text, /Subject Key Identifier/)
    t.match(text, /Authority Key Identifier/)
    t.match(text, /Signature Algorithm: ecdsa-with-SHA256/)
  },
)
