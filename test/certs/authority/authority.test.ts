import { X509Certificate } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { GeneralName } from 'pkijs'
import t from 'tap'
import { createAuthority, loadAuthority } from '../../../certs/authority/authority.ts'
import {
  alternativeNames,
  digitalSignatureKeyUsage,
  extendedKeyUsage,
  leafConstraints,
} from '../../../certs/authority/builder.ts'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import { OID, readCertificate } from '../../../certs/x509/x509.ts'
import { AT, BOT, caExtensions, DAY_MS, madeAuthority, odd } from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

await t.test(
  'threat 24 the root allows one CA below it, the intermediate none, and both may only sign',
  async (t) => {
    const { rootPem, intermediatePem } = await madeAuthority()
    const root = new X509Certificate(rootPem)
    const intermediate = new X509Certificate(intermediatePem)
    t.equal(root.subject, 'O=acme\nCN=acme Root CA')
    t.equal(intermediate.subject, 'O=acme\nCN=acme Issuing CA')
    t.equal(intermediate.issuer, root.subject)
    t.ok(root.ca && intermediate.ca)
    t.ok(root.verify(root.publicKey))
    t.ok(intermediate.verify(root.publicKey))
    t.notOk(root.verify(intermediate.publicKey))
  },
)

await t.test('the root lives 10 years and the intermediate 5, both dated back 60 s', async (t) => {
  const { rootPem, intermediatePem } = await madeAuthority()
  const root = new X509Certificate(rootPem)
  const intermediate = new X509Certificate(intermediatePem)
  t.equal(root.validFromDate.getTime(), AT - 60_000)
  t.equal(intermediate.validFromDate.getTime(), AT - 60_000)
  t.equal(root.validToDate.toISOString(), '2036-10-01T12:00:00.000Z')
  t.equal(intermediate.validToDate.toISOString(), '2031-10-01T12:00:00.000Z')
})

await t.test('RFC 5280 §4.1.2.5 a root that ends after 2049 says so in a GeneralizedTime', async (t) => {
  const { rootPem } = await createAuthority({ organisation: 'acme', at: Date.UTC(2045, 0) })
  t.equal(new X509Certificate(rootPem).validToDate.toISOString(), '2055-01-01T00:00:00.000Z')
})

await t.test('threat 24 serial numbers are random, positive and of 128 bits', async (t) => {
  const { authority } = await madeAuthority()
  const serials = new Set<string>()
  for (let count = 0; count < 64; count += 1) {
    const { serial, certPem } = await issueClientCertificate(authority, BOT, { at: AT, days: 1 })
    serials.add(serial)
    const number = readCertificate(new X509Certificate(certPem).raw).serialNumber.toBigInt()
    t.ok(number > 0n && number < 1n << 128n)
    t.equal(number, BigInt(`0x${serial}`))
  }
  t.equal(serials.size, 64)
  t.ok(
    [...serials].some((serial) => serial.length === 32 && serial > '8'),
    'the highest bit is used',
  )
})

await t.test('an organisation or trust domain that no SPIFFE id can hold gets no CA', async (t) => {
  await t.rejects(createAuthority({ organisation: 'ac me', at: AT }), /organisation/)
  await t.rejects(createAuthority({ organisation: '..', at: AT }), /organisation/)
  await t.rejects(createAuthority({ organisation: 'a'.repeat(54), at: AT }), /longer than 53/)
  await t.rejects(createAuthority({ organisation: 'acme', trustDomain: 'Acme', at: AT }), /trust domain/)
  await t.resolves(createAuthority({ organisation: 'a'.repeat(53), at: AT }))
})

await t.test('a loaded authority knows its organisation, trust domain and end', async (t) => {
  const { authority } = await madeAuthority()
  t.match(authority, {
    organisation: 'acme',
    trustDomain: 'sallyport.local',
    notAfter: Date.UTC(2031, 9, 1, 12),
  })
  const open = await loadAuthority(await createAuthority({ organisation: 'acme', at: AT }))
  t.equal(open.trustDomain, null)
})

await t.test(
  'an authority whose parts do not belong together is refused in one clear sentence',
  async (t) => {
    const one = await madeAuthority()
    const other = await madeAuthority()
    const refused = (parts: Partial<typeof one>, reason: RegExp) =>
      t.rejects(loadAuthority({ ...one, ...parts }), reason)
    await refused({ intermediateKeyPem: other.intermediateKeyPem }, /key does not belong to the intermediate/)
    await refused({ intermediateKeyPem: 'nothing' }, /key of the intermediate cannot be read/)
    // The same names and another key: a clone of the CA's distinguished name.
    await refused({ rootPem: other.rootPem }, /not signed by the root/)
    const altered = Buffer.from(new X509Certificate(one.intermediatePem).raw)
    altered[altered.length - 1] = (altered.at(-1) ?? 0) ^ 1
    await refused({ intermediatePem: new X509Certificate(altered).toString() }, /not signed by the root/)
    await refused({ rootPem: 'nothing' }, /no PEM certificate/)
    const { certPem, privateKeyPem } = await issueClientCertificate(one.authority, BOT, { at: AT, days: 1 })
    await refused(
      { intermediatePem: certPem, intermediateKeyPem: privateKeyPem },
      /intermediate certificate is not a CA/,
    )
    await refused({ rootPem: certPem }, /root certificate is not a CA/)
  },
)

await t.test(
  'openssl reads both certificates as strict X.509 and chains them',
  { skip: without('openssl') },
  async (t) => {
    const { rootPem, intermediatePem } = await madeAuthority(Date.now())
    const directory = t.testdir({ 'root.pem': rootPem, 'intermediate.pem': intermediatePem })
    const verified = openssl(directory, ['verify', '-x509_strict', '-CAfile', 'root.pem', 'intermediate.pem'])
    t.equal(verified.status, 0, verified.text)
    const root = openssl(directory, ['x509', '-in', 'root.pem', '-noout', '-text']).text
    t.match(root, /Basic Constraints: critical\s+CA:TRUE, pathlen:1/)
    t.match(root, /Key Usage: critical\s+Certificate Sign, CRL Sign\n/)
    const intermediate = openssl(directory, ['x509', '-in', 'intermediate.pem', '-noout', '-text']).text
    t.match(intermediate, /Basic Constraints: critical\s+CA:TRUE, pathlen:0/)
    t.match(intermediate, /Key Usage: critical\s+Certificate Sign, CRL Sign\n/)
    t.match(intermediate, /Name Constraints: critical\s+Permitted:\s+URI:sallyport.local/)
    t.match(intermediate, /Subject Key Identifier/)
    t.match(intermediate, /Authority Key Identifier/)
    t.match(intermediate, /NIST CURVE: P-256/)
  },
)

await t.test(
  'threat 24 openssl refuses what a stolen intermediate signs beyond its constraints',
  { skip: without('openssl') },
  async (t) => {
    const now = Date.now()
    const made = await madeAuthority(now)
    const signer = {
      x509: new X509Certificate(made.intermediatePem),
      pem: made.intermediatePem,
      key: made.authority.signer.key,
    }
    const term = { notBefore: now - DAY_MS, notAfter: now + DAY_MS }
    const client = [leafConstraints(), digitalSignatureKeyUsage(), extendedKeyUsage(OID.clientAuth)]
    const name = (value: string) => alternativeNames([new GeneralName({ type: 6, value })])
    const ours = await odd(
      { ...term, extensions: [...client, name('spiffe://sallyport.local/acme/bot')] },
      signer,
    )
    const foreign = await odd(
      { ...term, extensions: [...client, name('spiffe://other.example/acme/bot')] },
      signer,
    )
    const subordinate = await odd({ ...term, name: 'rogue CA', extensions: caExtensions(0) }, signer)
    const below = await odd({ ...term, extensions: client }, subordinate)
    const directory = t.testdir({ 'root.pem': made.rootPem })
    const verify = (leaf: string, untrusted: string) => {
      writeFileSync(join(directory, 'leaf.pem'), leaf)
      writeFileSync(join(directory, 'untrusted.pem'), untrusted)
      return openssl(directory, ['verify', '-CAfile', 'root.pem', '-untrusted', 'untrusted.pem', 'leaf.pem'])
    }
    t.equal(verify(ours.pem, signer.pem).status, 0)
    t.match(verify(foreign.pem, signer.pem), { status: 2, text: /permitted subtree violation/ })
    t.match(verify(below.pem, signer.pem + subordinate.pem), {
      status: 2,
      text: /path length constraint exceeded/,
    })
  },
)
