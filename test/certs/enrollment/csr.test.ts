import {
  createPublicKey,
  generateKeyPairSync,
  type KeyPairKeyObjectResult,
  sign,
  X509Certificate,
} from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Set as Asn1Set, BitString, Constructed, Integer, ObjectIdentifier, Sequence } from 'asn1js'
import fc from 'fast-check'
import { type Extension, Extensions } from 'pkijs'
import t from 'tap'
import { newKeyPair } from '../../../certs/authority/authority.ts'
import { authorityConstraints, leafConstraints } from '../../../certs/authority/builder.ts'
import { type ClientSubject, certifyClient, type ValidityPeriod } from '../../../certs/authority/issue.ts'
import { CertificateError, type CertificateReason } from '../../../certs/certificate-error.ts'
import { keyOfCsr, readCsr } from '../../../certs/enrollment/csr.ts'
import { uriNamesOf } from '../../../certs/enrollment/spiffe-id.ts'
import { verifyChain } from '../../../certs/x509/chain.ts'
import {
  type Asn1Value,
  decodeAsn1,
  firstCertificateOf,
  OID,
  thumbprintOf,
} from '../../../certs/x509/x509.ts'
import { AT, BOT, DAY_MS, madeAuthority } from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

const { authority, rootPem, intermediatePem } = await madeAuthority()
const TERM = { at: AT, days: 90 }
const EC = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']
const skip = without('openssl')

const PKCS9 = '1.2.840.113549.1.9.14'
const ECDSA_SHA256 = Buffer.from('06082a8648ce3d040302', 'hex')
const MICROSOFT = '1.3.6.1.4.1.311.2.1.14'

interface Attribute {
  readonly type: string
  readonly values: Asn1Value[]
}

interface Directory {
  readonly testdir: (files: Record<string, string>) => string
}

/** A request that openssl makes. The key stays in its directory. */
function requestBy(t: Directory, key: readonly string[], ...more: readonly string[]): string {
  const directory = t.testdir({})
  const place = ['-nodes', '-keyout', 'a.key', '-out', 'a.csr', '-subj', '/CN=whoever/O=evil']
  const { status, text } = openssl(directory, ['req', '-new', ...key, ...place, ...more])
  if (status !== 0) throw new Error(text)
  return readFileSync(join(directory, 'a.csr'), 'utf8')
}

/** A request for those extensions, each as openssl writes it. */
const asking = (t: Directory, ...extensions: readonly string[]) =>
  requestBy(t, EC, ...extensions.flatMap((extension) => ['-addext', extension]))

/** Issues for a request as the admin API does. */
async function issue(csrPem: string, subject: ClientSubject = BOT, term: ValidityPeriod = TERM) {
  return certifyClient(authority, await keyOfCsr(csrPem, subject.spiffeId), subject, term)
}

async function reasonOf(csrPem: string): Promise<CertificateReason | 'accepted'> {
  try {
    await issue(csrPem)
    return 'accepted'
  } catch (error) {
    if (error instanceof CertificateError) return error.reason
    throw error
  }
}

await t.test(
  '§5.1 a certificate from a request holds its public key and nothing else of it',
  { skip },
  async (t) => {
    const csr = asking(
      t,
      'keyUsage=keyEncipherment',
      '1.2.3.4=ASN1:NULL',
      `subjectAltName=URI:${BOT.spiffeId}`,
    )
    const issued = await issue(csr)
    const leaf = new X509Certificate(issued.certPem)
    t.ok(leaf.publicKey.equals((await readCsr(csr)).publicKey))
    t.equal(leaf.subject, 'O=acme\nCN=acme::bot')
    t.same(uriNamesOf(leaf.raw), [BOT.spiffeId])
    t.same(leaf.keyUsage, [OID.clientAuth])
    const { text } = openssl(t.testdir({ 'a.pem': issued.certPem }), [
      'x509',
      '-in',
      'a.pem',
      '-noout',
      '-text',
    ])
    t.match(text, /Key Usage: critical\s+Digital Signature\n/)
    t.notMatch(text, /1\.2\.3\.4|evil|whoever|Encipherment/)
    t.strictSame(issued, {
      certPem: leaf.toString(),
      chainPem: leaf.toString() + intermediatePem,
      thumbprint: thumbprintOf(leaf.raw),
      serial: leaf.serialNumber,
      issuer: thumbprintOf(firstCertificateOf(intermediatePem).raw),
      notBefore: AT - 60_000,
      notAfter: AT + 90 * DAY_MS,
    })
    await verifyChain({ leafPem: issued.chainPem, intermediatesPem: '', rootsPem: rootPem, at: AT })
  },
)

await t.test(
  'M-07 requests for EC P-256, P-384, P-521, Ed25519 and RSA from 2048 are granted',
  { skip },
  async (t) => {
    for (const curve of ['P-256', 'P-384', 'P-521']) {
      const csr = requestBy(t, ['-newkey', 'ec', '-pkeyopt', `ec_paramgen_curve:${curve}`])
      const { certPem } = await issue(csr)
      t.ok(new X509Certificate(certPem).publicKey.equals(publicKeyBy(t, csr)), curve)
    }
    for (const digest of ['-sha256', '-sha384', '-sha512'])
      t.equal(await reasonOf(requestBy(t, ['-newkey', 'rsa:2048'], digest)), 'accepted', digest)
    t.equal(await reasonOf(requestBy(t, ['-newkey', 'ed25519'])), 'accepted')
    const csr = requestBy(t, EC)
    t.equal(await reasonOf(`\n${csr.replaceAll('\n', '\r\n')}\n`), 'accepted', 'CRLF and space around')
    t.equal(await reasonOf(csr.replaceAll('CERTIFICATE REQUEST', 'NEW CERTIFICATE REQUEST')), 'accepted')
  },
)

await t.test('M-07 a request with a weak, odd or unknown key is refused', { skip }, async (t) => {
  const ec = (...options: string[]) => ['-newkey', 'ec', ...options.flatMap((option) => ['-pkeyopt', option])]
  const refused = [
    ['-newkey', 'rsa:1024'],
    ['-newkey', 'rsa:2048', '-pkeyopt', 'rsa_keygen_pubexp:3'],
    ['-newkey', 'rsa-pss', '-pkeyopt', 'rsa_keygen_bits:2048'],
    ['-newkey', 'ed448'],
    ec('ec_paramgen_curve:prime192v1'),
    ec('ec_paramgen_curve:secp256k1'),
    // P-256 spelled out in numbers: OpenSSL knows it again, other verifiers do not.
    ec('ec_paramgen_curve:P-256', 'ec_param_enc:explicit'),
  ]
  for (const key of refused) t.equal(await reasonOf(requestBy(t, key)), 'key_too_weak', key.join(' '))
})

await t.test('M-07 a request signed with SHA-1 or MD5 is refused, also as PSS', { skip }, async (t) => {
  t.equal(await reasonOf(requestBy(t, EC, '-sha1')), 'signature_too_weak')
  const rsa = ['-newkey', 'rsa:2048']
  for (const digest of ['-sha1', '-md5'])
    t.equal(await reasonOf(requestBy(t, rsa, digest)), 'signature_too_weak')
  const pss = ['-sigopt', 'rsa_padding_mode:pss']
  t.equal(await reasonOf(requestBy(t, rsa, '-sha1', ...pss)), 'signature_too_weak')
  t.equal(await reasonOf(requestBy(t, rsa, ...pss)), 'accepted')
  t.equal(await reasonOf(requestBy(t, rsa, '-sha512', ...pss)), 'accepted')
})

await t.test('RFC 2986 §3 a request is signed by the key that it asks for', { skip }, async (t) => {
  const mine = derOf(requestBy(t, EC))
  const other = derOf(requestBy(t, EC))
  const rsa = derOf(requestBy(t, ['-newkey', 'rsa:2048']))
  const spki = (der: Buffer) => publicKeyBy(t, pemOf(der)).export({ type: 'spki', format: 'der' })
  const swapped = Buffer.from(mine)
  spki(other).copy(swapped, mine.indexOf(spki(mine)))
  t.equal(await reasonOf(pemOf(swapped)), 'signature_invalid', 'somebody else’s public key')
  const flipped = Buffer.from(rsa)
  flipped[flipped.length - 1] = (flipped.at(-1) ?? 0) ^ 1
  t.equal(await reasonOf(pemOf(flipped)), 'signature_invalid', 'an altered signature')
  const renamed = Buffer.from(rsa)
  renamed[renamed.indexOf('whoever')] = 0x57
  t.equal(await reasonOf(pemOf(renamed)), 'signature_invalid', 'an altered subject')
  // ecdsa-with-SHA256 becomes ecdsa-with-SHA384.
  const redigested = Buffer.from(mine)
  redigested[mine.lastIndexOf(ECDSA_SHA256) + ECDSA_SHA256.length - 1] = 3
  t.equal(await reasonOf(pemOf(redigested)), 'signature_invalid', 'another digest')
  const rsaKeys = generateKeyPairSync('rsa', { modulusLength: 2048 })
  t.equal(await reasonOf(await requestOf([], rsaKeys)), 'signature_invalid', 'RSA that says ECDSA')
  for (const der of [mine, other, rsa]) t.equal(await reasonOf(pemOf(der)), 'accepted')
})

await t.test('M-08 a request may name our SPIFFE id alone, or nobody', { skip }, async (t) => {
  const named = (names: string) => reasonOf(asking(t, `subjectAltName=${names}`))
  t.equal(await reasonOf(asking(t)), 'accepted')
  t.equal(await named(`URI:${BOT.spiffeId}`), 'accepted')
  t.equal(await named(`critical,URI:${BOT.spiffeId}`), 'accepted')
  const refused = [
    'URI:spiffe://sallyport.local/acme/root',
    'URI:spiffe://other/acme/bot',
    'URI:spiffe://sallyport.local/acme/Bot',
    `URI:${BOT.spiffeId},URI:${BOT.spiffeId}`,
    `URI:${BOT.spiffeId},URI:spiffe://sallyport.local/acme/root`,
    `URI:${BOT.spiffeId},DNS:localhost`,
    `DNS:${BOT.spiffeId}`,
    'IP:127.0.0.1',
    'email:root@acme.example',
    'otherName:1.3.6.1.4.1.311.20.2.3;UTF8:root@acme.example',
  ]
  for (const names of refused) t.equal(await named(names), 'foreign_san', names)
})

await t.test(
  'threat 24 a request to be a CA, or for another use than a client’s, is refused',
  { skip },
  async (t) => {
    const refused = [
      'basicConstraints=CA:TRUE',
      'basicConstraints=critical,CA:TRUE,pathlen:0',
      'keyUsage=keyCertSign',
      'keyUsage=critical,digitalSignature,cRLSign',
      'extendedKeyUsage=serverAuth',
      'extendedKeyUsage=clientAuth,serverAuth',
      'extendedKeyUsage=anyExtendedKeyUsage',
      'extendedKeyUsage=1.2.3.4',
    ]
    for (const extension of refused) t.equal(await reasonOf(asking(t, extension)), 'ca_requested', extension)
    const fine = [
      'basicConstraints=critical,CA:FALSE',
      'keyUsage=critical,digitalSignature',
      'extendedKeyUsage=clientAuth',
    ]
    t.equal(await reasonOf(asking(t, ...fine)), 'accepted')
  },
)

await t.test(
  'RFC 5280 §4.2 a request for a critical extension that we do not grant is refused',
  { skip },
  async (t) => {
    t.equal(await reasonOf(asking(t, '1.2.3.4=critical,ASN1:NULL')), 'unknown_critical_extension')
    t.equal(
      await reasonOf(asking(t, 'nameConstraints=critical,permitted;DNS:a')),
      'unknown_critical_extension',
    )
    t.equal(
      await reasonOf(asking(t, '1.2.3.4=ASN1:NULL')),
      'accepted',
      'and one that is not critical is left out',
    )
  },
)

await t.test('threat 24 extensions asked for under Microsoft’s number are judged alike', async (t) => {
  for (const type of [PKCS9, MICROSOFT]) {
    t.equal(
      await reasonOf(await requestOf([{ type, values: [list(authorityConstraints(0))] }])),
      'ca_requested',
    )
    t.equal(await reasonOf(await requestOf([{ type, values: [list(leafConstraints())] }])), 'accepted')
  }
})

await t.test('RFC 2985 §5.4.2 extensions are asked for once, in one list, each once', async (t) => {
  const one = { type: PKCS9, values: [list(leafConstraints())] }
  const refused = {
    'two attributes': [one, one],
    'an attribute of each number': [one, { ...one, type: MICROSOFT }],
    'two values': [{ type: PKCS9, values: [list(leafConstraints()), list(authorityConstraints(0))] }],
    'no value': [{ type: PKCS9, values: [] }],
    'an extension twice': [{ type: PKCS9, values: [list(leafConstraints(), authorityConstraints(0))] }],
    'no list': [{ type: PKCS9, values: [new Integer({ value: 1 })] }],
  }
  for (const [what, attributes] of Object.entries(refused))
    t.equal(await reasonOf(await requestOf(attributes)), 'certificate_unreadable', what)
  t.equal(await reasonOf(await requestOf([one])), 'accepted')
  t.equal(await reasonOf(await requestOf([])), 'accepted')
  t.equal(await reasonOf(await requestOf([one, { type: '1.2.840.113549.1.9.7', values: [] }])), 'accepted')
})

await t.test('M-14 anything but one request in PEM is refused as unreadable', { skip }, async (t) => {
  const csr = requestBy(t, EC)
  const der = derOf(csr)
  const shortened = Buffer.from(der)
  // The length of the whole, in its last octet: the sender's parts then reach beyond it.
  const length = 1 + ((der[1] ?? 0) & 0x7f)
  shortened[length] = (shortened[length] ?? 0) - 1
  const broken = Buffer.from(der)
  // The count of unused bits, behind the number of the algorithm, a tag and a length.
  broken[der.lastIndexOf(ECDSA_SHA256) + ECDSA_SHA256.length + 2] = 1
  const refused = {
    nothing: '',
    text: 'hello',
    'a certificate': rootPem,
    'a request labelled a certificate': csr.replaceAll('CERTIFICATE REQUEST', 'CERTIFICATE'),
    'a certificate labelled a request': rootPem.replaceAll('CERTIFICATE', 'CERTIFICATE REQUEST'),
    two: csr + csr,
    'text before': `hello\n${csr}`,
    'text after': `${csr}hello`,
    'a key beside it': `${csr}-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n`,
    unclosed: csr.slice(0, -30),
    'labels that differ': csr.replace('BEGIN CERT', 'BEGIN NEW CERT'),
    'a byte after the DER': pemOf(Buffer.concat([der, Buffer.of(0)])),
    'a second DER behind the first': pemOf(Buffer.concat([der, der])),
    'a byte too few': pemOf(der.subarray(0, -1)),
    'a null byte': `${csr}\0`,
    'more than 64 KiB': csr + ' '.repeat(65_537 - csr.length),
    'an end before that of its parts': pemOf(shortened),
    'a signature of broken bytes': pemOf(broken),
    '10 MB': csr + ' '.repeat(10_000_000),
    'nested without end': pemOf(Buffer.alloc(40_000, Buffer.of(0x30, 0x80))),
  }
  for (const [what, pem] of Object.entries(refused))
    t.equal(await reasonOf(pem), 'certificate_unreadable', what)
  t.equal(await reasonOf(csr + ' '.repeat(65_536 - csr.length)), 'accepted')
})

await t.test('threat 24 who may be named stays the authority’s say', { skip }, async (t) => {
  const csr = requestBy(t, EC)
  const other = { commonName: 'x', spiffeId: 'spiffe://sallyport.local/other/bot' }
  await t.rejects(issue(csr, other), /issues for the organisation acme, not for other/)
  await t.rejects(issue(csr, BOT, { at: authority.notAfter, days: 1 }), /issuing CA expired/)
})

await t.test('M-12 a mutated request is refused with a reason, and never granted', { skip }, async (t) => {
  const der = derOf(asking(t, 'keyUsage=digitalSignature', `subjectAltName=URI:${BOT.spiffeId}`))
  const change = fc.record({
    at: fc.nat(der.length - 1),
    by: fc.integer({ min: 1, max: 255 }),
    cut: fc.nat(5),
  })
  const seen = new Set<string>()
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(change, { minLength: 1, maxLength: 4, selector: ({ at }) => at }),
      async (changes) => {
        let bytes = Buffer.from(der)
        for (const { at, by } of changes) bytes[at] = (bytes[at] ?? 0) ^ by
        const [first] = changes
        if (first?.cut === 0)
          bytes = Buffer.concat([bytes.subarray(0, first.at), bytes.subarray(first.at + 1)])
        const reason = await reasonOf(pemOf(bytes))
        seen.add(reason)
        return reason !== 'accepted'
      },
    ),
    { numRuns: 400 },
  )
  t.ok(seen.has('certificate_unreadable') && seen.has('signature_invalid'), 'in more than one place')
  t.equal(await reasonOf(pemOf(der)), 'accepted')
})

function list(...extensions: Extension[]): Asn1Value {
  return new Extensions({ extensions }).toSchema()
}

/**
 * A request with exactly these attributes, signed by the key of that pair as ECDSA with SHA-256, whatever it
 * is.
 */
async function requestOf(attributes: readonly Attribute[], keys?: KeyPairKeyObjectResult): Promise<string> {
  const { publicKey, privateKey } = keys ?? (await newKeyPair())
  const body = new Sequence({
    value: [
      new Integer({ value: 0 }),
      new Sequence({ value: [] }),
      decodeAsn1(publicKey.export({ type: 'spki', format: 'der' })),
      new Constructed({
        idBlock: { tagClass: 3, tagNumber: 0 },
        value: attributes.map(
          ({ type, values }) =>
            new Sequence({ value: [new ObjectIdentifier({ value: type }), new Asn1Set({ value: values })] }),
        ),
      }),
    ],
  })
  const signature = Uint8Array.from(sign('sha256', Buffer.from(body.toBER(false)), privateKey))
  const algorithm = new Sequence({ value: [new ObjectIdentifier({ value: OID.ecdsaWithSha256 })] })
  const whole = new Sequence({ value: [body, algorithm, new BitString({ valueHex: signature })] })
  return pemOf(Buffer.from(whole.toBER(false)))
}

function derOf(csrPem: string): Buffer {
  return Buffer.from(csrPem.replaceAll(/-----[A-Z ]+-----/g, ''), 'base64')
}

function pemOf(der: Buffer): string {
  return `-----BEGIN CERTIFICATE REQUEST-----\n${der.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`
}

/** The public key as openssl reads it. */
function publicKeyBy(t: Directory, csr: string) {
  return createPublicKey(
    openssl(t.testdir({ 'a.csr': csr }), ['req', '-in', 'a.csr', '-noout', '-pubkey']).text,
  )
}
