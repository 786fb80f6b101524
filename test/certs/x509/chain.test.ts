import { generateKeyPairSync } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { OctetString } from 'asn1js'
import fc from 'fast-check'
import { Extension, GeneralName, GeneralSubtree, NameConstraints, RelativeDistinguishedNames } from 'pkijs'
import t from 'tap'
import {
  alternativeNames,
  authorityConstraints,
  certSignKeyUsage,
  digitalSignatureKeyUsage,
  extendedKeyUsage,
  leafConstraints,
  permittedNameConstraints,
} from '../../../certs/authority/builder.ts'
import { issueClientCertificate, issueServerCertificate } from '../../../certs/authority/issue.ts'
import { CertificateError, type CertificateReason } from '../../../certs/certificate-error.ts'
import { type VerifyChainOptions, verifyChain } from '../../../certs/x509/chain.ts'
import { OID, readCertificate } from '../../../certs/x509/x509.ts'
import {
  AT,
  BOT,
  caExtensions,
  DAY_MS,
  madeAuthority,
  type Odd,
  type OddCertificate,
  odd,
} from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

const CLIENT = [leafConstraints(), digitalSignatureKeyUsage(), extendedKeyUsage(OID.clientAuth)]
const root = await odd({ name: 'root', extensions: caExtensions(1) })
const intermediate = await odd({ name: 'intermediate', extensions: caExtensions(0) }, root)
const client = await odd({ name: 'client', extensions: CLIENT }, intermediate)

// A chain is invalid in several ways, told apart by their sentence.
const NOT_CHAINED = 'chain_invalid: The certificate does not chain to a trusted CA.'
const NOT_A_CA = 'chain_invalid: An issuer in the chain is not a CA certificate.'
const NOT_PERMITTED = 'chain_invalid: A CA of the chain does not permit a name that the certificate carries.'
const TOO_MANY = 'chain_invalid: More than 8 intermediate certificates were given.'
const TOO_LONG = 'chain_invalid: The chain is longer than leaf, intermediate, root.'
const BELOW_LIMIT = 'chain_invalid: A CA of the chain allows fewer CAs below it.'

type Verdict = CertificateReason | `chain_invalid: ${string}` | 'accepted'

async function reasonOf(chain: Partial<VerifyChainOptions>): Promise<Verdict> {
  const whole = {
    leafPem: client.pem,
    intermediatesPem: intermediate.pem,
    rootsPem: root.pem,
    at: AT,
    ...chain,
  }
  try {
    await verifyChain(whole)
    return 'accepted'
  } catch (error) {
    if (!(error instanceof CertificateError)) throw error
    return error.reason === 'chain_invalid' ? `chain_invalid: ${error.message}` : error.reason
  }
}

/** The verdict on a leaf of that plan under the good intermediate. */
const leafReason = async (plan: Odd) => reasonOf({ leafPem: (await odd(plan, intermediate)).pem })

/** The verdict on a good leaf under an intermediate of that plan. */
async function issuerReason(plan: Odd): Promise<Verdict> {
  const issuer = await odd({ name: 'issuer', ...plan }, root)
  const leaf = await odd({ name: 'client', extensions: CLIENT }, issuer)
  return reasonOf({ leafPem: leaf.pem, intermediatesPem: issuer.pem })
}

await t.test('M-07 a client certificate that this service issued chains to its root', async (t) => {
  const { authority, rootPem, intermediatePem } = await madeAuthority()
  const issued = await issueClientCertificate(authority, BOT, { at: AT, days: 90 })
  t.equal(await reasonOf({ leafPem: issued.chainPem, intermediatesPem: '', rootsPem: rootPem }), 'accepted')
  t.equal(
    await reasonOf({ leafPem: issued.certPem, intermediatesPem: intermediatePem, rootsPem: rootPem }),
    'accepted',
  )
  t.equal(
    await reasonOf({ leafPem: issued.certPem, intermediatesPem: '', rootsPem: intermediatePem }),
    'accepted',
  )
})

await t.test('M-07 a chain is found whatever the order and whatever else was sent', async (t) => {
  const stranger = await odd({ name: 'stranger', extensions: caExtensions(0) })
  t.equal(await reasonOf({ intermediatesPem: stranger.pem + root.pem + intermediate.pem }), 'accepted')
  t.equal(await reasonOf({ rootsPem: stranger.pem + root.pem }), 'accepted')
  t.equal(await reasonOf({ rootsPem: [stranger.pem, root.pem] }), 'accepted')
  t.equal(await reasonOf({ rootsPem: [] }), NOT_CHAINED)
  const path = await verifyChain({
    leafPem: client.pem,
    intermediatesPem: stranger.pem + intermediate.pem,
    rootsPem: [stranger.pem, root.pem],
    at: AT,
  })
  t.same(
    path.map(({ x509 }) => x509.toString()),
    [client.pem, intermediate.pem, root.pem],
    'the path alone, leaf first',
  )
  t.equal(await reasonOf({ intermediatesPem: intermediate.pem.repeat(9) }), TOO_MANY)
})

await t.test(
  'M-07 an untrusted CA, a clone of our CA by name, and a self-signed leaf are refused',
  async (t) => {
    const clone = await odd({ name: 'root', extensions: caExtensions(1) })
    const cloned = await odd({ name: 'intermediate', extensions: caExtensions(0) }, clone)
    const imposter = await odd({ name: 'client', extensions: CLIENT }, cloned)
    t.equal(await reasonOf({ leafPem: imposter.pem, intermediatesPem: cloned.pem }), NOT_CHAINED)
    t.equal(await reasonOf({ leafPem: imposter.pem }), NOT_CHAINED)
    t.equal(await reasonOf({ rootsPem: clone.pem }), NOT_CHAINED)
    t.equal(await reasonOf({ rootsPem: '' }), NOT_CHAINED)
    t.equal(await reasonOf({ intermediatesPem: '' }), NOT_CHAINED)
    const alone = await odd({ extensions: CLIENT })
    t.equal(await reasonOf({ leafPem: alone.pem }), NOT_CHAINED)
    t.equal(await reasonOf({ leafPem: alone.pem, rootsPem: alone.pem }), NOT_CHAINED)
  },
)

await t.test('M-07 a leaf signed by a leaf is refused', async (t) => {
  const signedByLeaf = await odd({ extensions: CLIENT }, client)
  const intermediatesPem = client.pem + intermediate.pem
  t.equal(await reasonOf({ leafPem: signedByLeaf.pem, intermediatesPem }), NOT_CHAINED)
  t.equal(await issuerReason({ extensions: [leafConstraints()] }), NOT_A_CA)
  t.equal(await issuerReason({ extensions: [] }), NOT_A_CA)
})

await t.test('M-07 pathLen and the depth of two are kept', async (t) => {
  const wide = await odd({ name: 'wide root', extensions: caExtensions(5) })
  const first = await odd({ name: 'first', extensions: caExtensions(4) }, wide)
  const second = await odd({ name: 'second', extensions: caExtensions(3) }, first)
  const leaf = await odd({ extensions: CLIENT }, second)
  const deep = { leafPem: leaf.pem, intermediatesPem: first.pem + second.pem }
  t.equal(await reasonOf({ ...deep, rootsPem: wide.pem }), TOO_LONG)
  t.equal(await reasonOf({ ...deep, rootsPem: first.pem }), 'accepted')
  const narrow = await odd({ name: 'narrow root', extensions: caExtensions(0) })
  const below = await odd({ name: 'below', extensions: caExtensions(0) }, narrow)
  const third = await odd({ extensions: CLIENT }, below)
  t.equal(
    await reasonOf({ leafPem: third.pem, intermediatesPem: below.pem, rootsPem: narrow.pem }),
    BELOW_LIMIT,
  )
})

await t.test('M-05 every certificate of the chain is asked for its dates', async (t) => {
  t.equal(await reasonOf({ at: AT + DAY_MS }), 'accepted')
  t.equal(await reasonOf({ at: AT + DAY_MS + 1000 }), 'certificate_expired')
  t.equal(await reasonOf({ at: AT - DAY_MS - 1000 }), 'certificate_not_yet_valid')
  t.equal(await issuerReason({ extensions: caExtensions(0), notAfter: AT - 1000 }), 'certificate_expired')
  t.equal(
    await issuerReason({ extensions: caExtensions(0), notBefore: AT + 1000 }),
    'certificate_not_yet_valid',
  )
  const oldRoot = await odd({ name: 'old', extensions: caExtensions(1), notAfter: AT - 1000 })
  const leaf = await odd({ extensions: CLIENT }, oldRoot)
  t.equal(await reasonOf({ leafPem: leaf.pem, rootsPem: oldRoot.pem }), 'certificate_expired')
})

await t.test(
  'M-07 a leaf must be a client certificate by basicConstraints, keyUsage and extendedKeyUsage',
  async (t) => {
    const usages = [leafConstraints(), digitalSignatureKeyUsage()]
    t.equal(await leafReason({ extensions: [] }), 'accepted')
    t.equal(await leafReason({ extensions: usages }), 'accepted')
    t.equal(
      await leafReason({ extensions: [...usages, extendedKeyUsage(OID.serverAuth)] }),
      'client_auth_missing',
    )
    t.equal(
      await leafReason({ extensions: [...usages, extendedKeyUsage('2.5.29.37.0')] }),
      'client_auth_missing',
    )
    t.equal(await leafReason({ extensions: [leafConstraints(), certSignKeyUsage()] }), 'is_a_ca')
    t.equal(
      await leafReason({ extensions: [authorityConstraints(0), digitalSignatureKeyUsage()] }),
      'is_a_ca',
    )
    // keyEncipherment alone.
    const encipher = new Extension({ extnID: OID.keyUsage, extnValue: Uint8Array.of(3, 2, 5, 0x20).buffer })
    t.equal(await leafReason({ extensions: [leafConstraints(), encipher] }), 'digital_signature_missing')
    // digitalSignature and keyCertSign, by one who is no CA.
    const both = new Extension({ extnID: OID.keyUsage, extnValue: Uint8Array.of(3, 2, 2, 0x84).buffer })
    t.equal(await leafReason({ extensions: [leafConstraints(), both] }), 'is_a_ca')
    // digitalSignature and cRLSign: who revokes is no client either.
    const revokes = new Extension({ extnID: OID.keyUsage, extnValue: Uint8Array.of(3, 2, 1, 0x82).buffer })
    t.equal(await leafReason({ extensions: [leafConstraints(), revokes] }), 'is_a_ca')
    t.equal(await reasonOf({ leafPem: intermediate.pem }), 'is_a_ca')
    const limited = [...caExtensions(0), extendedKeyUsage(OID.serverAuth)]
    t.equal(await issuerReason({ extensions: limited }), 'client_auth_missing')
    t.equal(
      await issuerReason({ extensions: [authorityConstraints(0), digitalSignatureKeyUsage()] }),
      NOT_CHAINED,
    )
    const { authority, rootPem } = await madeAuthority()
    const server = await issueServerCertificate(authority, ['localhost'], { at: AT, days: 1 })
    t.equal(await reasonOf({ leafPem: server.chainPem, rootsPem: rootPem }), 'client_auth_missing')
  },
)

await t.test('M-07 keys below EC P-256 and RSA 2048 are refused, and kinds we do not know', async (t) => {
  const rsa = (modulusLength: number) => generateKeyPairSync('rsa', { modulusLength })
  t.equal(await leafReason({ extensions: CLIENT, key: rsa(2048) }), 'accepted')
  t.equal(await leafReason({ extensions: CLIENT, key: rsa(1024) }), 'key_too_weak')
  const ec = (namedCurve: string) => generateKeyPairSync('ec', { namedCurve })
  t.equal(await leafReason({ extensions: CLIENT, key: ec('P-384') }), 'accepted')
  t.equal(await leafReason({ extensions: CLIENT, key: ec('prime192v1') }), 'key_too_weak')
  t.equal(await leafReason({ extensions: CLIENT, key: ec('secp224r1') }), 'key_too_weak')
  t.equal(await leafReason({ extensions: CLIENT, key: generateKeyPairSync('ed25519') }), 'accepted')
  t.equal(await leafReason({ extensions: CLIENT, key: generateKeyPairSync('ed448') }), 'key_too_weak')
  t.equal(await issuerReason({ extensions: caExtensions(0), key: ec('prime192v1') }), 'key_too_weak')
})

await t.test(
  'RFC 5280 §4.2 a critical extension that we do not understand is refused, another is not',
  async (t) => {
    const extnValue = new OctetString({ valueHex: Uint8Array.of(1) }).toBER(false)
    const strange = (critical: boolean) => new Extension({ extnID: '1.2.3.4', critical, extnValue })
    t.equal(await leafReason({ extensions: [...CLIENT, strange(false)] }), 'accepted')
    t.equal(await leafReason({ extensions: [...CLIENT, strange(true)] }), 'unknown_critical_extension')
    t.equal(
      await issuerReason({ extensions: [...caExtensions(0), strange(true)] }),
      'unknown_critical_extension',
    )
  },
)

await t.test('M-07 a name outside the name constraints of a CA is refused', async (t) => {
  const general = (type: 1 | 2 | 6, value: string) => new GeneralName({ type, value })
  const verdict = async (base: GeneralName, name: GeneralName) => {
    const issuer = await odd(
      { name: 'held', extensions: [...caExtensions(0), permittedNameConstraints(base)] },
      root,
    )
    const leaf = await odd({ extensions: [...CLIENT, alternativeNames([name])] }, issuer)
    return reasonOf({ leafPem: leaf.pem, intermediatesPem: issuer.pem })
  }
  const uri = (value: string) => general(6, value)
  t.equal(await verdict(uri('td.example'), uri('spiffe://td.example/acme/bot')), 'accepted')
  t.equal(await verdict(uri('td.example'), uri('spiffe://other.example/acme/bot')), NOT_PERMITTED)
  t.equal(await verdict(uri('td.example'), uri('spiffe://x.td.example/acme/bot')), NOT_PERMITTED)
  t.equal(await verdict(uri('.example'), uri('spiffe://td.example/acme/bot')), 'accepted')
  t.equal(await verdict(uri('td.example'), uri('nonsense')), NOT_PERMITTED)
  t.equal(await verdict(uri('td.example'), general(2, 'other.example')), 'accepted')
  t.equal(await verdict(general(2, 'td.example'), general(2, 'a.td.example')), 'accepted')
  t.equal(await verdict(general(2, 'td.example'), general(2, 'atd.example')), NOT_PERMITTED)
  for (const [base, mail, expected] of [
    ['td.example', 'me@TD.example', 'accepted'],
    ['td.example', 'me@a.td.example', NOT_PERMITTED],
    ['.td.example', 'me@a.td.example', 'accepted'],
    ['me@td.example', 'me@td.example', 'accepted'],
    ['me@td.example', 'Me@td.example', NOT_PERMITTED],
    ['td.example', 'td.example', NOT_PERMITTED],
  ] as const)
    t.equal(await verdict(general(1, base), general(1, mail)), expected, `${base} ${mail}`)
  const address = (...bytes: number[]) =>
    new GeneralName({ type: 7, value: new OctetString({ valueHex: Uint8Array.from(bytes) }) })
  const net = address(10, 1, 0, 0, 255, 255, 0, 0)
  t.equal(await verdict(net, address(10, 1, 2, 3)), 'accepted')
  t.equal(await verdict(net, address(10, 2, 2, 3)), NOT_PERMITTED)
  t.equal(await verdict(net, address(...Array.from({ length: 16 }, () => 10))), NOT_PERMITTED)
  t.equal(await verdict(net, address(10, 1)), NOT_PERMITTED)
  // A kind that we cannot judge permits nothing.
  const registered = (value: string) => new GeneralName({ type: 8, value })
  t.equal(await verdict(registered('1.2.3'), registered('1.2.3')), NOT_PERMITTED)
  // Every certificate has a subject.
  const named = uri('spiffe://td.example/acme/bot')
  const { subject } = readCertificate(root.x509.raw)
  t.equal(await verdict(new GeneralName({ type: 4, value: subject }), named), NOT_PERMITTED)
  const above = new RelativeDistinguishedNames({ typesAndValues: subject.typesAndValues.slice(0, 1) })
  t.equal(await verdict(new GeneralName({ type: 4, value: above }), named), 'accepted')
  // The root's own constraints count as well.
  const held = await odd({
    name: 'held root',
    extensions: [...caExtensions(1), permittedNameConstraints(uri('td.example'))],
  })
  const leaf = await odd(
    { extensions: [...CLIENT, alternativeNames([uri('spiffe://other/acme/bot')])] },
    held,
  )
  t.equal(await reasonOf({ leafPem: leaf.pem, rootsPem: held.pem }), NOT_PERMITTED)
})

await t.test('M-07 a name that a CA excludes is refused', async (t) => {
  const excludedSubtrees = [new GeneralSubtree({ base: new GeneralName({ type: 6, value: 'evil.example' }) })]
  const extnValue = new NameConstraints({ excludedSubtrees }).toSchema().toBER(false)
  const excluding = new Extension({ extnID: OID.nameConstraints, critical: true, extnValue })
  const issuer = await odd({ name: 'held', extensions: [...caExtensions(0), excluding] }, root)
  const verdict = async (uri: string) => {
    const name = new GeneralName({ type: 6, value: uri })
    const leaf = await odd({ extensions: [...CLIENT, alternativeNames([name])] }, issuer)
    return reasonOf({ leafPem: leaf.pem, intermediatesPem: issuer.pem })
  }
  t.equal(await verdict('spiffe://td.example/acme/bot'), 'accepted')
  t.equal(await verdict('spiffe://evil.example/acme/bot'), NOT_PERMITTED)
  t.equal(await verdict('spiffe://EVIL.example/acme/bot'), NOT_PERMITTED)
})

await t.test(
  'M-07 SHA-1 signatures are refused, on the leaf and on the intermediate',
  { skip: without('openssl') },
  async (t) => {
    const signedWith = (leafDigest: string, caDigest: string) => {
      const directory = t.testdir({
        'ca.ext': 'basicConstraints=critical,CA:TRUE\n',
        'leaf.ext': 'keyUsage=digitalSignature\n',
      })
      const ec = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes']
      const request = (name: string, ...more: string[]) =>
        openssl(directory, [
          'req',
          ...more,
          ...ec,
          '-keyout',
          `${name}.key`,
          '-out',
          `${name}.pem`,
          '-subj',
          `/CN=${name}`,
        ])
      const sign = (name: string, by: string, digest: string, ext: string) =>
        openssl(directory, [
          ...[
            'x509',
            '-req',
            '-in',
            `${name}.pem`,
            '-CA',
            `${by}.pem`,
            '-CAkey',
            `${by}.key`,
            '-set_serial',
            '7',
          ],
          ...[`-${digest}`, '-extfile', ext, '-days', '2', '-out', `${name}.pem`],
        ])
      request('top', '-x509')
      request('middle')
      request('bottom')
      sign('middle', 'top', caDigest, 'ca.ext')
      const { status, text } = sign('bottom', 'middle', leafDigest, 'leaf.ext')
      if (status !== 0) throw new Error(text)
      const pem = (name: string) => readFileSync(join(directory, `${name}.pem`), 'utf8')
      return {
        leafPem: pem('bottom'),
        intermediatesPem: pem('middle'),
        rootsPem: pem('top'),
        at: Date.now() + 60_000,
      }
    }
    t.equal(await reasonOf(signedWith('sha256', 'sha384')), 'accepted')
    t.equal(await reasonOf(signedWith('sha1', 'sha256')), 'signature_too_weak')
    t.equal(await reasonOf(signedWith('sha256', 'sha1')), 'signature_too_weak')
  },
)

await t.test('M-12 what is no certificate is refused as unreadable', async (t) => {
  t.equal(await reasonOf({ leafPem: '' }), 'certificate_unreadable')
  t.equal(await reasonOf({ leafPem: 'hello' }), 'certificate_unreadable')
  t.equal(await reasonOf({ leafPem: pemOf(Buffer.from('hello')) }), 'certificate_unreadable')
  t.equal(await reasonOf({ leafPem: ' '.repeat(300_000) }), 'certificate_unreadable')
  const unclosed = `${client.pem}-----BEGIN CERTIFICATE-----\nAAAA`
  t.equal(
    await reasonOf({ leafPem: unclosed }),
    'certificate_unreadable',
    'no block is passed over in silence',
  )
  t.equal(await reasonOf({ intermediatesPem: pemOf(Buffer.from('hello')) }), 'certificate_unreadable')
  t.equal(await leafReason({ extensions: [leafConstraints(), leafConstraints()] }), 'certificate_unreadable')
})

await t.test('M-12 a mutated certificate is refused with a reason, and never accepted', async (t) => {
  const raw = client.x509.raw
  const change = fc.tuple(fc.nat(raw.length - 1), fc.integer({ min: 1, max: 255 }))
  await fc.assert(
    fc.asyncProperty(
      fc.uniqueArray(change, { minLength: 1, maxLength: 4, selector: ([at]) => at }),
      async (changes) => {
        const bytes = Buffer.from(raw)
        for (const [at, by] of changes) bytes[at] = (bytes[at] ?? 0) ^ by
        return (await reasonOf({ leafPem: pemOf(bytes) })) !== 'accepted'
      },
    ),
    { numRuns: 300 },
  )
  t.equal(await reasonOf({ leafPem: pemOf(raw) }), 'accepted')
})

await t.test(
  'openssl agrees on the good chain and on a cloned one',
  { skip: without('openssl') },
  async (t) => {
    const directory = t.testdir({ 'root.pem': root.pem, 'intermediate.pem': intermediate.pem })
    const agrees = (leaf: OddCertificate) => {
      writeFileSync(join(directory, 'leaf.pem'), leaf.pem)
      const when = ['-attime', String(AT / 1000), '-purpose', 'sslclient']
      return openssl(directory, [
        'verify',
        ...when,
        '-CAfile',
        'root.pem',
        '-untrusted',
        'intermediate.pem',
        'leaf.pem',
      ])
    }
    t.equal(agrees(client).status, 0)
    const clone = await odd({ name: 'intermediate', extensions: caExtensions(0) })
    t.not(agrees(await odd({ extensions: CLIENT }, clone)).status, 0)
  },
)

function pemOf(der: Buffer): string {
  return `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`
}

await t.test(
  'RFC 4055, RFC 8410: RSASSA-PSS with SHA-256 or better and Ed25519 are strong signatures',
  { skip: without('openssl') },
  async (t) => {
    const verdict = async (key: readonly string[], ...sigopts: readonly string[]): Promise<string> => {
      const directory = t.testdir({ 'leaf.ext': 'keyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n' })
      const run = (...args: readonly string[]) => {
        const { status, text } = openssl(directory, args)
        if (status !== 0) throw new Error(text)
      }
      const request = ['req', '-new', '-nodes', '-newkey']
      run(...request, ...key, '-x509', '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=ca', ...sigopts)
      run(...request, 'ed25519', '-keyout', 'leaf.key', '-out', 'leaf.csr', '-subj', '/CN=leaf')
      const signed = ['-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-out', 'leaf.pem']
      run('x509', '-req', '-in', 'leaf.csr', ...signed, '-extfile', 'leaf.ext', ...sigopts)
      const read = (name: string) => readFileSync(join(directory, name), 'utf8')
      return reasonOf({ leafPem: read('leaf.pem'), rootsPem: read('ca.pem'), at: Date.now() + 1000 })
    }
    const pss = ['-sigopt', 'rsa_padding_mode:pss', '-sigopt', 'rsa_pss_saltlen:digest']
    for (const digest of ['-sha256', '-sha384', '-sha512'])
      t.equal(await verdict(['rsa:2048'], digest, ...pss), 'accepted', digest)
    t.equal(await verdict(['rsa-pss', '-pkeyopt', 'rsa_keygen_bits:2048'], '-sha256', ...pss), 'accepted')
    t.equal(await verdict(['ed25519']), 'accepted')
    t.equal(await verdict(['rsa:2048'], '-sha1', ...pss), 'signature_too_weak')
    const mixed = ['-sigopt', 'rsa_mgf1_md:sha1']
    t.equal(await verdict(['rsa:2048'], '-sha256', ...pss, ...mixed), 'signature_too_weak', 'MGF1 with SHA-1')
    t.equal(await verdict(['ed448']), 'signature_too_weak')
  },
)
