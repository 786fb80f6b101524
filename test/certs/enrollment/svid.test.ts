import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { Extension, ExtKeyUsage, GeneralName } from 'pkijs'
import t from 'tap'
import {
  alternativeNames,
  digitalSignatureKeyUsage,
  extendedKeyUsage,
  leafConstraints,
} from '../../../certs/authority/builder.ts'
import { CertificateError, type CertificateReason } from '../../../certs/certificate-error.ts'
import { isWorkloadId } from '../../../certs/enrollment/spiffe-id.ts'
import {
  checkSvid,
  type PresentedSvid,
  type SvidEnrollment,
  svidAnchor,
} from '../../../certs/enrollment/svid.ts'
import { OID, thumbprintOf } from '../../../certs/x509/x509.ts'
import { AT, caExtensions, DAY_MS, type OddCertificate, odd } from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

const ID = 'spiffe://prod.example/ns/default/sa/bot'
const EITHER_SIDE = new Extension({
  extnID: OID.extendedKeyUsage,
  extnValue: new ExtKeyUsage({ keyPurposes: [OID.serverAuth, OID.clientAuth] }).toSchema().toBER(false),
})
const USAGES = [leafConstraints(), digitalSignatureKeyUsage(), EITHER_SIDE]

const uri = (value: string) => new GeneralName({ type: 6, value })
const named = (...uris: string[]) => alternativeNames(uris.map(uri))
const keyOf = ({ key }: OddCertificate) => key.export({ type: 'pkcs8', format: 'pem' }).toString()

const root = await odd({ name: 'SPIRE', extensions: [...caExtensions(1), named('spiffe://prod.example')] })
const intermediate = await odd({ name: 'SPIRE below', extensions: caExtensions(0) }, root)
const svid = await odd({ extensions: [...USAGES, named(ID)] }, root)

const enrol = (parts: Partial<SvidEnrollment> = {}) =>
  checkSvid({ svidPem: svid.pem, svidKeyPem: keyOf(svid), bundlePems: [root.pem], at: AT, ...parts })

async function reasonOf(parts: Partial<SvidEnrollment>): Promise<CertificateReason | 'accepted'> {
  try {
    await enrol(parts)
    return 'accepted'
  } catch (error) {
    if (error instanceof CertificateError) return error.reason
    throw error
  }
}

/** The verdict on an SVID with exactly these extensions, by the trusted root. */
async function svidReason(...extensions: Extension[]): Promise<CertificateReason | 'accepted'> {
  const leaf = await odd({ extensions }, root)
  return reasonOf({ svidPem: leaf.pem, svidKeyPem: keyOf(leaf) })
}

const isSvidOf = async (asked: PresentedSvid): Promise<boolean> => (await svidAnchor(asked)) !== null
const presented = (parts: Partial<PresentedSvid> = {}) =>
  isSvidOf({ leafDer: svid.x509.raw, spiffeId: ID, bundlePems: [root.pem], at: AT, ...parts })

await t.test(
  '§5.3 an SVID under its bundle is enrolled with its SPIFFE id, whatever the shape of its path',
  async (t) => {
    t.strictSame(await enrol(), {
      leafPem: svid.pem,
      chainPem: svid.pem,
      thumbprint: thumbprintOf(svid.x509.raw),
      notBefore: AT - DAY_MS,
      notAfter: AT + DAY_MS,
      spiffeId: ID,
      anchors: [thumbprintOf(root.x509.raw)],
    })
    for (const id of ['spiffe://prod.example/a', 'spiffe://sallyport.local/acme/bot', 'spiffe://a_b/x/Y.z/-'])
      t.equal(await svidReason(...USAGES, named(id)), 'accepted', id)
    const dns = new GeneralName({ type: 2, value: 'bot.example' })
    t.equal(await svidReason(...USAGES, alternativeNames([dns, uri(ID)])), 'accepted', 'beside a DNS name')
    const below = await odd({ extensions: [...USAGES, named(ID)] }, intermediate)
    const nested = await enrol({ svidPem: below.pem + intermediate.pem, svidKeyPem: keyOf(below) })
    t.equal(nested.chainPem, below.pem + intermediate.pem)
  },
)

await t.test(
  'X.509-SVID §2 an SVID has exactly one URI SAN, and it is a SPIFFE id with a path',
  async (t) => {
    t.equal(await svidReason(...USAGES), 'spiffe_missing')
    const dns = alternativeNames([new GeneralName({ type: 2, value: 'bot.example' })])
    t.equal(await svidReason(...USAGES, dns), 'spiffe_missing')
    t.equal(await svidReason(...USAGES, named(ID, 'spiffe://prod.example/root')), 'spiffe_ambiguous')
    t.equal(await svidReason(...USAGES, named(ID, 'https://prod.example')), 'spiffe_ambiguous')
    for (const id of ['spiffe://prod.example', 'https://prod.example/a', `${ID}/`])
      t.equal(await svidReason(...USAGES, named(id)), 'spiffe_malformed', id)
  },
)

await t.test('SPIFFE-ID §2 a workload’s id has one spelling', async (t) => {
  const taken = [
    ID,
    'spiffe://td/a',
    `spiffe://${'t'.repeat(255)}/a`,
    `spiffe://td/${'a'.repeat(2036)}`,
    'spiffe://td/...',
  ]
  for (const id of taken) t.equal(isWorkloadId(id), true, id)
  const refused = [
    '',
    'spiffe://',
    'spiffe://td',
    'spiffe://td/',
    'spiffe:///a',
    'spiffe://TD/a',
    'SPIFFE://td/a',
    'spiffe://td:443/a',
    'spiffe://me@td/a',
    'spiffe://td/a/',
    'spiffe://td//a',
    'spiffe://td/./a',
    'spiffe://td/a/..',
    'spiffe://td/%61',
    'spiffe://td/a?b',
    'spiffe://td/a#b',
    'spiffe://td/a b',
    'spiffe://td/ä',
    'spiffe://td/a\n',
    'spiffe://td/a\0',
    'spiffe://td/a,DNS:evil',
    ` ${ID}`,
    `spiffe://${'t'.repeat(256)}/a`,
    `spiffe://td/${'a'.repeat(2037)}`,
  ]
  for (const id of refused) t.equal(isWorkloadId(id), false, JSON.stringify(id.slice(0, 40)))
})

await t.test('X.509-SVID §4.3 an SVID states digitalSignature and signs no certificates', async (t) => {
  const usage = (unused: number, bits: number) =>
    new Extension({
      extnID: OID.keyUsage,
      critical: true,
      extnValue: Uint8Array.of(3, 2, unused, bits).buffer,
    })
  const verdict = (...extensions: Extension[]) => svidReason(named(ID), ...extensions)
  t.equal(await verdict(digitalSignatureKeyUsage()), 'accepted')
  t.equal(await verdict(usage(3, 0xa8)), 'accepted', 'with keyEncipherment and keyAgreement')
  t.equal(await verdict(), 'digital_signature_missing', 'without keyUsage')
  t.equal(await verdict(usage(5, 0x20)), 'digital_signature_missing')
  t.equal(await verdict(usage(2, 0x84)), 'is_a_ca', 'keyCertSign')
  t.equal(await verdict(usage(1, 0x82)), 'is_a_ca', 'cRLSign')
  t.equal(await verdict(...caExtensions(0)), 'is_a_ca')
  t.equal(await verdict(digitalSignatureKeyUsage(), extendedKeyUsage(OID.serverAuth)), 'client_auth_missing')
})

await t.test('§5.3 an SVID of another bundle, another time or another key is refused', async (t) => {
  const clone = await odd({ name: 'SPIRE', extensions: caExtensions(1) })
  t.equal(await reasonOf({ bundlePems: [clone.pem] }), 'chain_invalid')
  t.equal(await reasonOf({ bundlePems: [clone.pem, root.pem] }), 'accepted', 'a bundle while it rotates')
  t.equal(await reasonOf({ bundlePems: [clone.pem + root.pem] }), 'accepted', 'in one text')
  t.equal(await reasonOf({ bundlePems: [] }), 'no_ca_attached')
  t.equal(await reasonOf({ at: AT + DAY_MS + 1000 }), 'certificate_expired')
  t.equal(await reasonOf({ at: AT - DAY_MS - 1000 }), 'certificate_not_yet_valid')
  t.equal(await reasonOf({ svidKeyPem: keyOf(root) }), 'key_mismatch')
  t.equal(await reasonOf({ svidKeyPem: '' }), 'private_key_unreadable')
  t.equal(await reasonOf({ svidPem: '' }), 'certificate_unreadable')
})

await t.test('§5.3 a rotated SVID of the same SPIFFE id is known again under the bundle', async (t) => {
  const rotated = await odd({ extensions: [...USAGES, named(ID)], notAfter: AT + 2 * DAY_MS }, root)
  t.not(thumbprintOf(rotated.x509.raw), thumbprintOf(svid.x509.raw))
  const later = AT + DAY_MS + 1000
  t.equal(await presented({ leafDer: rotated.x509.raw }), true)
  t.equal(await presented({ leafDer: svid.x509.raw, at: later }), false, 'the old one has expired')
  const newRoot = await odd({ name: 'SPIRE 2', extensions: caExtensions(1) })
  const byNewRoot = await odd({ extensions: [...USAGES, named(ID)] }, newRoot)
  t.equal(await presented({ leafDer: byNewRoot.x509.raw }), false)
  t.equal(await presented({ leafDer: byNewRoot.x509.raw, bundlePems: [root.pem, newRoot.pem] }), true)
})

await t.test(
  '§5.3 a leaf without its intermediate is known where the bundle or the peer supplies it',
  async (t) => {
    const { x509 } = await odd({ extensions: [...USAGES, named(ID)] }, intermediate)
    const leafDer = x509.raw
    t.equal(await presented({ leafDer }), false)
    t.equal(await presented({ leafDer, bundlePems: [root.pem, intermediate.pem] }), true)
    t.equal(await presented({ leafDer, intermediatesPem: intermediate.pem }), true)
  },
)

await t.test(
  'H7 a CA that does not vouch is an intermediate at most, and only of one that does',
  async (t) => {
    const evil = await odd({ name: 'evil', extensions: caExtensions(1) })
    const bySomebodyElse = await odd({ extensions: [...USAGES, named(ID)] }, evil)
    t.equal(await presented({ leafDer: bySomebodyElse.x509.raw, intermediatesPem: evil.pem }), false)
    // The name and the key of an honest CA, certified by one that nobody trusts: anybody can make these.
    const { publicKey } = root.x509
    const crossed = await Promise.all(
      Array.from({ length: 9 }, () =>
        odd({ name: 'SPIRE', extensions: caExtensions(0), key: { publicKey, privateKey: evil.key } }, evil),
      ),
    )
    const intermediatesPem = crossed.map(({ pem }) => pem).join('')
    t.equal(await presented({ intermediatesPem }), true, 'nine of them keep nobody out')
    t.equal(await presented({ intermediatesPem, bundlePems: [intermediate.pem] }), false, 'and let nobody in')
    t.equal(await presented({ intermediatesPem: root.pem, bundlePems: [evil.pem] }), false)
  },
)

await t.test(
  'H7 an enrollment says by which CAs of the bundle its SVID chains, and names no other',
  async (t) => {
    const evil = await odd({ name: 'evil', extensions: caExtensions(1) })
    const bundlePems = [root.pem, intermediate.pem, evil.pem]
    const digests = (...cas: readonly OddCertificate[]) =>
      cas.map(({ x509 }) => thumbprintOf(x509.raw)).toSorted()
    t.strictSame((await enrol({ bundlePems })).anchors, digests(root))
    const below = await odd({ extensions: [...USAGES, named(ID)] }, intermediate)
    const svidKeyPem = keyOf(below)
    const leaf = await enrol({ svidPem: below.pem, svidKeyPem, bundlePems })
    t.strictSame(
      leaf.anchors,
      digests(intermediate),
      'not what stands above it: somebody else may have attached that',
    )
    const chain = await enrol({ svidPem: below.pem + intermediate.pem, svidKeyPem, bundlePems })
    t.strictSame(chain.anchors, digests(root, intermediate), 'its own chain leads to both')
  },
)

await t.test('M-08 no other id, issuer, shape or time passes for the enrolled SVID', async (t) => {
  const verdict = async (...extensions: Extension[]) =>
    presented({ leafDer: (await odd({ extensions }, root)).x509.raw })
  t.equal(await verdict(...USAGES, named(ID)), true)
  t.equal(await verdict(...USAGES, named(`${ID}2`)), false)
  t.equal(await verdict(...USAGES, named(ID.toUpperCase())), false)
  t.equal(await verdict(...USAGES, named(ID, 'spiffe://prod.example/root')), false)
  t.equal(await verdict(...USAGES, named('spiffe://prod.example/root', ID)), false)
  t.equal(await verdict(...USAGES), false)
  t.equal(await verdict(leafConstraints(), named(ID)), false, 'without keyUsage')
  t.equal(await verdict(...caExtensions(0), named(ID)), false)
  const alone = await odd({ extensions: [...USAGES, named(ID)] })
  t.equal(await presented({ leafDer: alone.x509.raw, bundlePems: [root.pem, alone.pem] }), false)
  t.equal(await presented({ spiffeId: `${ID}2` }), false)
  t.equal(await presented({ spiffeId: '' }), false)
  t.equal(await presented({ bundlePems: [] }), false)
  t.equal(await presented({ bundlePems: ['hello'] }), false)
  t.equal(await presented({ at: AT - DAY_MS - 1000 }), false)
  const clone = await odd({ name: 'SPIRE', extensions: caExtensions(1) })
  t.equal(await presented({ bundlePems: [clone.pem] }), false)
})

await t.test('M-12 hostile bytes are answered with false, never with an exception', async (t) => {
  const hostile = [
    Buffer.alloc(0),
    Buffer.from('hello'),
    Buffer.from(svid.pem),
    svid.x509.raw.subarray(0, -1),
    Buffer.concat([svid.x509.raw, Buffer.of(0)]),
    Buffer.concat([svid.x509.raw, svid.x509.raw]),
    Buffer.alloc(40_000, Buffer.of(0x30, 0x80)),
  ]
  for (const leafDer of hostile) t.equal(await presented({ leafDer }), false)
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), async (leafDer) => !(await presented({ leafDer }))),
    { numRuns: 200 },
  )
  const raw = svid.x509.raw
  const change = fc.record({
    at: fc.nat(raw.length - 1),
    by: fc.integer({ min: 1, max: 255 }),
    cut: fc.nat(5),
  })
  const changes = fc.uniqueArray(change, { minLength: 1, maxLength: 4, selector: ({ at }) => at })
  await fc.assert(
    fc.asyncProperty(changes, async (some) => {
      let bytes = Buffer.from(raw)
      for (const { at, by } of some) bytes[at] = (bytes[at] ?? 0) ^ by
      const [first] = some
      if (first?.cut === 0) bytes = Buffer.concat([bytes.subarray(0, first.at), bytes.subarray(first.at + 1)])
      return !(await presented({ leafDer: bytes }))
    }),
    { numRuns: 300 },
  )
  t.equal(await presented(), true)
})

await t.test(
  '§5.3 what openssl makes as an SVID is enrolled and known again',
  { skip: without('openssl') },
  async (t) => {
    const directory = t.testdir({
      'ca.ext':
        'basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectAltName=URI:spiffe://prod.example\n',
      'a.ext': [
        'basicConstraints=critical,CA:FALSE',
        'keyUsage=critical,digitalSignature,keyEncipherment,keyAgreement',
        'extendedKeyUsage=serverAuth,clientAuth',
        `subjectAltName=critical,URI:${ID},DNS:bot`,
        '',
      ].join('\n'),
    })
    const run = (line: string) => {
      const { status, text } = openssl(directory, line.split(' '))
      if (status !== 0) throw new Error(text)
    }
    const ec = '-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
    run(`req -new ${ec} -keyout ca.key -out ca.csr -subj /C=US/O=SPIFFE`)
    run('x509 -req -in ca.csr -signkey ca.key -set_serial 1 -extfile ca.ext -days 2 -out ca.pem')
    // No subject at all: the SAN is critical and says who this is.
    run(`req -new ${ec} -keyout a.key -out a.csr -subj /`)
    run('x509 -req -in a.csr -CA ca.pem -CAkey ca.key -set_serial 2 -extfile a.ext -days 1 -out a.pem')
    const read = (name: string) => readFileSync(join(directory, name), 'utf8')
    const bundlePems = [read('ca.pem')]
    const at = Date.now() + 60_000
    const enrolled = await checkSvid({ svidPem: read('a.pem'), svidKeyPem: read('a.key'), bundlePems, at })
    t.equal(enrolled.spiffeId, ID)
    const leafDer = new X509Certificate(enrolled.leafPem).raw
    t.equal(await isSvidOf({ leafDer, spiffeId: ID, bundlePems, at }), true)
  },
)
