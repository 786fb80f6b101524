import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OctetString } from 'asn1js'
import fc from 'fast-check'
import { Extension } from 'pkijs'
import t from 'tap'
import {
  authorityConstraints,
  digitalSignatureKeyUsage,
  extendedKeyUsage,
  leafConstraints,
} from '../../../certs/authority/builder.ts'
import { CertificateError, type CertificateReason } from '../../../certs/certificate-error.ts'
import { readCaBundle } from '../../../certs/enrollment/ca-certificate.ts'
import { OID, thumbprintOf } from '../../../certs/x509/x509.ts'
import { AT, caExtensions, DAY_MS, type Odd, odd } from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

const root = await odd({ name: 'root', extensions: caExtensions(1) })
const intermediate = await odd({ name: 'intermediate', extensions: caExtensions(0) }, root)

function reasonOf(pem: string, at = AT): CertificateReason | 'accepted' {
  try {
    readCaBundle(pem, at)
    return 'accepted'
  } catch (error) {
    if (error instanceof CertificateError) return error.reason
    throw error
  }
}

const caReason = async (plan: Odd) => reasonOf((await odd(plan)).pem)

await t.test(
  'docs/protocol.md#cas a CA is attached by its digest, subject and end, its PEM made plain',
  async (t) => {
    const ca = {
      pem: root.pem,
      digest: thumbprintOf(root.x509.raw),
      subject: 'O=acme, CN=root',
      notAfter: AT + DAY_MS,
      line: 1,
    }
    t.strictSame(readCaBundle(root.pem, AT), { cas: [ca], passedOver: [] })
    const decorated = `Subject: root\r\n${root.pem.replaceAll('\n', '\r\n')}\n\nand so on\n`
    t.strictSame(readCaBundle(decorated, AT).cas, [{ ...ca, line: 2 }])
  },
)

await t.test('docs/protocol.md#cas the sound CAs of a bundle count, and the rest is told', async (t) => {
  const leaf = await odd({ name: 'leaf', extensions: [leafConstraints(), digitalSignatureKeyUsage()] }, root)
  const ended = await odd({ name: 'old', extensions: caExtensions(0), notAfter: AT - 1000 })
  const relabelled = root.pem.replaceAll('CERTIFICATE', 'TRUSTED CERTIFICATE')
  const older = intermediate.pem.replaceAll('CERTIFICATE', 'X509 CERTIFICATE')
  const cases = [
    ['a comment and a BOM', '\ufeff# the CA of acme\n\n', null],
    ['an expired CA', ended.pem, 'certificate_expired'],
    ['a leaf', leaf.pem, 'not_a_ca'],
    ['the same again', intermediate.pem, 'duplicate'],
    ['garbage', pemOf(Buffer.from('hello')), 'certificate_unreadable'],
    ['a block that does not end', '-----BEGIN CERTIFICATE-----\nAAAA\n', 'certificate_unreadable'],
    ['another kind of block', relabelled, 'certificate_unreadable'],
  ] as const
  for (const [what, block, reason] of cases) {
    for (const [before, after] of [
      [older, block],
      [block, older],
    ] as const) {
      const text = `${before}${after}${root.pem}`.replaceAll('\n', '\r\n')
      const isFirst = before === block && reason !== 'duplicate'
      const { cas, passedOver } = readCaBundle(text, AT)
      t.strictSame(
        cas.map(({ digest }) => digest),
        [intermediate, root].map(({ x509 }) => thumbprintOf(x509.raw)),
        what,
      )
      const line = isFirst ? 1 : before.split('\n').length
      t.match(passedOver, reason === null ? [] : [{ line, reason, message: /\.$/ }], what)
      t.equal(passedOver.length, reason === null ? 0 : 1)
    }
    if (reason !== null && reason !== 'duplicate') t.equal(reasonOf(block), reason, `${what} alone`)
  }
  t.match(readCaBundle(ended.pem + root.pem, AT).passedOver, [{ subject: 'O=acme, CN=old' }])
  const key = root.key.export({ type: 'pkcs8', format: 'pem' }).toString()
  const sealed = key.replaceAll('PRIVATE', 'ENCRYPTED PRIVATE')
  for (const secret of [key, sealed])
    t.throws(() => readCaBundle(root.pem + secret, AT), {
      reason: 'certificate_unreadable',
      message: /private key, at line \d+\. .* replace that key/,
    })
  t.equal(reasonOf(root.pem.repeat(101)), 'certificate_unreadable')
})

await t.test('M-07 only a CA that may sign certificates is attached', async (t) => {
  t.equal(await caReason({ extensions: caExtensions(0) }), 'accepted')
  t.equal(await caReason({ extensions: [authorityConstraints(0)] }), 'accepted', 'no keyUsage allows all')
  t.equal(await caReason({ extensions: [authorityConstraints(0), digitalSignatureKeyUsage()] }), 'not_a_ca')
  t.equal(await caReason({ extensions: [leafConstraints()] }), 'not_a_ca')
  t.equal(await caReason({ extensions: [] }), 'not_a_ca')
})

await t.test('M-07 a weak CA, and one that no chain could end at, is not attached', async (t) => {
  const rsa = (modulusLength: number) => generateKeyPairSync('rsa', { modulusLength })
  const under = async (plan: Odd) => reasonOf((await odd(plan, root)).pem)
  t.equal(await under({ extensions: caExtensions(0), key: rsa(2048) }), 'accepted')
  t.equal(await under({ extensions: caExtensions(0), key: rsa(1024) }), 'key_too_weak')
  const limited = [...caExtensions(0), extendedKeyUsage(OID.serverAuth)]
  t.equal(await caReason({ extensions: limited }), 'client_auth_missing')
  const extnValue = new OctetString({ valueHex: Uint8Array.of(1) }).toBER(false)
  const strange = new Extension({ extnID: '1.2.3.4', critical: true, extnValue })
  t.equal(await caReason({ extensions: [...caExtensions(0), strange] }), 'unknown_critical_extension')
})

await t.test('M-05 an expired CA is not attached, one that is not valid yet is', async (t) => {
  t.equal(reasonOf(root.pem, AT + DAY_MS), 'accepted')
  t.equal(reasonOf(root.pem, AT + DAY_MS + 1000), 'certificate_expired')
  t.equal(reasonOf(root.pem, AT - 10 * DAY_MS), 'accepted')
  const backwards = { extensions: caExtensions(0), notBefore: AT + DAY_MS, notAfter: AT + 1000 }
  t.equal(await caReason(backwards), 'certificate_expired', 'and one that ends before it begins is not')
})

await t.test('M-14 what is no certificate is not attached', async (t) => {
  const key = root.key.export({ type: 'pkcs8', format: 'pem' }).toString()
  for (const pem of ['', 'hello', key, pemOf(Buffer.from('hello')), root.pem + ' '.repeat(10_000_000)])
    t.equal(reasonOf(pem), 'certificate_unreadable')
})

await t.test('M-12 a mutated CA certificate is read or refused with a reason', async () => {
  const raw = root.x509.raw
  const change = fc.tuple(fc.nat(raw.length - 1), fc.integer({ min: 1, max: 255 }))
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), (changes) => {
      const bytes = Buffer.from(raw)
      for (const [at, by] of changes) bytes[at] = (bytes[at] ?? 0) ^ by
      // Its own signature proves nothing, so that some of them are accepted: what counts is that nothing else
      // is thrown.
      return typeof reasonOf(pemOf(bytes)) === 'string'
    }),
    { numRuns: 300 },
  )
})

await t.test(
  'docs/protocol.md#cas a root as openssl makes it by default is attached',
  { skip: without('openssl') },
  async (t) => {
    const directory = t.testdir({})
    const command = 'req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj'
    openssl(directory, [...command.split(' '), '/O=acme, inc/CN=root'])
    const [{ digest, subject }] = readCaBundle(
      readFileSync(join(directory, 'ca.pem'), 'utf8'),
      Date.now(),
    ).cas
    const { text } = openssl(directory, 'x509 -in ca.pem -noout -fingerprint -sha256'.split(' '))
    t.ok(text.replaceAll(':', '').toLowerCase().includes(digest))
    t.equal(subject, 'O=acme\\, inc, CN=root')
  },
)

function pemOf(der: Buffer): string {
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`
}
