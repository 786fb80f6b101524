import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { OctetString } from 'asn1js'
import fc from 'fast-check'
import { Extension, GeneralName } from 'pkijs'
import t from 'tap'
import {
  alternativeNames,
  authorityConstraints,
  digitalSignatureKeyUsage,
  extendedKeyUsage,
  leafConstraints,
} from '../../../certs/authority/builder.ts'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import { CertificateError, type CertificateReason } from '../../../certs/certificate-error.ts'
import { type ByocaEnrollment, checkByoca } from '../../../certs/enrollment/enrollment.ts'
import { OID, thumbprintOf } from '../../../certs/x509/x509.ts'
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

const keyOf = ({ key }: OddCertificate) => key.export({ type: 'pkcs8', format: 'pem' }).toString()
const uri = (value: string) => new GeneralName({ type: 6, value })

/** The good enrollment, but for those parts. */
const enrol = (parts: Partial<ByocaEnrollment> = {}) =>
  checkByoca({
    certPem: client.pem + intermediate.pem,
    privateKeyPem: keyOf(client),
    caPems: [root.pem],
    at: AT,
    organisation: 'acme',
    name: 'bot',
    ...parts,
  })

async function reasonOf(parts: Partial<ByocaEnrollment>): Promise<CertificateReason | 'accepted'> {
  try {
    await enrol(parts)
    return 'accepted'
  } catch (error) {
    if (error instanceof CertificateError) return error.reason
    throw error
  }
}

/** The verdict on a leaf of that plan, with its own key, under the good intermediate. */
async function leafReason(plan: Odd): Promise<CertificateReason | 'accepted'> {
  const leaf = await odd(plan, intermediate)
  return reasonOf({ certPem: leaf.pem + intermediate.pem, privateKeyPem: keyOf(leaf) })
}

await t.test(
  '§5.3 a certificate of the attached CA is enrolled as its leaf, chain, digest and dates',
  async (t) => {
    t.strictSame(await enrol(), {
      leafPem: client.pem,
      chainPem: client.pem + intermediate.pem,
      thumbprint: thumbprintOf(client.x509.raw),
      notBefore: AT - DAY_MS,
      notAfter: AT + DAY_MS,
      spiffeId: null,
    })
    const others = await odd({ name: 'others', extensions: caExtensions(1) })
    const whole = {
      certPem: client.pem + others.pem + root.pem + intermediate.pem,
      caPems: [others.pem, root.pem],
    }
    t.equal((await enrol(whole)).chainPem, client.pem + intermediate.pem, 'only what it chains by is kept')
    const short = { certPem: client.pem, caPems: [intermediate.pem] }
    t.equal((await enrol(short)).chainPem, client.pem, 'an attached intermediate is enough')
    t.equal((await enrol({ ...short, caPems: [others.pem + intermediate.pem] })).chainPem, client.pem)
  },
)

await t.test('M-14 a text that is not one leaf with its CAs is refused', async (t) => {
  const second = await odd({ name: 'second', extensions: CLIENT }, intermediate)
  const refused = {
    nothing: '',
    text: 'hello',
    'a key': keyOf(client),
    'two leaves': client.pem + second.pem,
    'the leaf twice': client.pem + client.pem,
    'a damaged second block': `${client.pem}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`,
    'an unclosed second block': `${client.pem}-----BEGIN CERTIFICATE-----\nAAAA`,
    '10 MB': client.pem + ' '.repeat(10_000_000),
  }
  for (const [what, certPem] of Object.entries(refused))
    t.equal(await reasonOf({ certPem }), 'certificate_unreadable', what)
  t.equal(await reasonOf({}), 'accepted')
})

await t.test('M-14 a private key that cannot be read, or is sealed, is refused', async (t) => {
  const sealed = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' } as const
  const refused = ['', 'hello', client.pem, client.key.export(sealed).toString(), ' '.repeat(10_000_000)]
  for (const privateKeyPem of refused) t.equal(await reasonOf({ privateKeyPem }), 'private_key_unreadable')
  const sec1 = client.key.export({ type: 'sec1', format: 'pem' }).toString()
  t.equal(await reasonOf({ privateKeyPem: sec1 }), 'accepted')
})

await t.test('M-14 a private key of another certificate is refused', async (t) => {
  t.equal(await reasonOf({ privateKeyPem: keyOf(intermediate) }), 'key_mismatch')
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
  const rsaPem = rsa.privateKey.export({ type: 'pkcs1', format: 'pem' }).toString()
  t.equal(await reasonOf({ privateKeyPem: rsaPem }), 'key_mismatch')
  const leaf = await odd({ extensions: CLIENT, key: rsa }, intermediate)
  t.equal(await reasonOf({ certPem: leaf.pem + intermediate.pem, privateKeyPem: rsaPem }), 'accepted')
})

await t.test('M-14 with no CA attached nothing is enrolled, and the reason says so', async (t) => {
  t.equal(await reasonOf({ caPems: [] }), 'no_ca_attached')
})

await t.test('M-14 a certificate that does not chain to an attached CA is refused', async (t) => {
  const clone = await odd({ name: 'root', extensions: caExtensions(1) })
  t.equal(await reasonOf({ caPems: [clone.pem] }), 'chain_invalid', 'a look-alike by name')
  t.equal(await reasonOf({ certPem: client.pem }), 'chain_invalid', 'the intermediate is missing')
  t.equal(await reasonOf({ caPems: [client.pem] }), 'chain_invalid', 'itself')
  const ours = await madeAuthority()
  const issued = await issueClientCertificate(ours.authority, BOT, { at: AT, days: 1 })
  const foreign = { certPem: issued.chainPem, privateKeyPem: issued.privateKeyPem }
  t.equal(await reasonOf(foreign), 'chain_invalid', 'our own CA is not attached')
  t.equal(await reasonOf({ ...foreign, caPems: [ours.rootPem] }), 'accepted')
  const below = await odd({ name: 'below', extensions: caExtensions(0) }, intermediate)
  const deep = await odd({ extensions: CLIENT }, below)
  const certPem = deep.pem + below.pem + intermediate.pem
  t.equal(await reasonOf({ certPem, privateKeyPem: keyOf(deep) }), 'chain_invalid', 'pathLen')
})

await t.test('M-05 a certificate is enrolled between its two dates and at no other time', async (t) => {
  t.equal(await reasonOf({ at: AT + DAY_MS }), 'accepted')
  t.equal(await reasonOf({ at: AT + DAY_MS + 1000 }), 'certificate_expired')
  t.equal(await reasonOf({ at: AT - DAY_MS }), 'accepted')
  t.equal(await reasonOf({ at: AT - DAY_MS - 1000 }), 'certificate_not_yet_valid')
})

await t.test('M-07 weak keys are refused', async (t) => {
  const key = generateKeyPairSync('rsa', { modulusLength: 1024 })
  t.equal(await leafReason({ extensions: CLIENT, key }), 'key_too_weak')
  const p192 = generateKeyPairSync('ec', { namedCurve: 'prime192v1' })
  t.equal(await leafReason({ extensions: CLIENT, key: p192 }), 'key_too_weak')
  t.equal(await leafReason({ extensions: CLIENT, key: generateKeyPairSync('ed25519') }), 'accepted')
  t.equal(await leafReason({ extensions: CLIENT, key: generateKeyPairSync('ed448') }), 'key_too_weak')
  const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' })
  t.equal(await leafReason({ extensions: CLIENT, key: p384 }), 'accepted')
})

await t.test('M-07 a certificate must be a client’s: not a CA’s, not a server’s', async (t) => {
  const usages = [leafConstraints(), digitalSignatureKeyUsage()]
  t.equal(await leafReason({ extensions: usages }), 'accepted', 'no extendedKeyUsage')
  t.equal(
    await leafReason({ extensions: [...usages, extendedKeyUsage(OID.serverAuth)] }),
    'client_auth_missing',
  )
  t.equal(await leafReason({ extensions: [authorityConstraints(0), digitalSignatureKeyUsage()] }), 'is_a_ca')
  const theCa = { certPem: intermediate.pem, privateKeyPem: keyOf(intermediate) }
  t.equal(await reasonOf(theCa), 'is_a_ca', 'the certificate of the CA itself')
  t.equal(await reasonOf({ ...theCa, certPem: intermediate.pem + client.pem }), 'certificate_unreadable')
  const encipher = new Extension({ extnID: OID.keyUsage, extnValue: Uint8Array.of(3, 2, 5, 0x20).buffer })
  t.equal(await leafReason({ extensions: [encipher] }), 'digital_signature_missing')
  const extnValue = new OctetString({ valueHex: Uint8Array.of(1) }).toBER(false)
  const strange = (critical: boolean) => new Extension({ extnID: '1.2.3.4', critical, extnValue })
  t.equal(await leafReason({ extensions: [...CLIENT, strange(true)] }), 'unknown_critical_extension')
  t.equal(await leafReason({ extensions: [...CLIENT, strange(false)] }), 'accepted')
})

await t.test('M-08 a SPIFFE id names this organisation and agent, in whatever trust domain', async (t) => {
  const named = (...uris: string[]) =>
    leafReason({ extensions: [...CLIENT, alternativeNames(uris.map(uri))] })
  t.equal(await named('spiffe://sallyport.local/acme/bot'), 'accepted')
  t.equal(await named('spiffe://acme.example/acme/bot'), 'accepted')
  const refused = [
    'spiffe://acme.example/other/bot',
    'spiffe://acme.example/acme/root',
    'spiffe://acme.example/acme/Bot',
    'spiffe://acme.example/Acme/bot',
    'spiffe://acme.example/acme/bot/',
    'spiffe://acme.example/x/acme/bot',
    'spiffe://acme.example/acme/bot/x',
    'spiffe://acme.example/acme/user/bot',
    'spiffe://acme.example/acme/workload/bot',
    'spiffe://acme.example/acme/x/../bot',
    'spiffe://acme.example/acme%2fbot',
    'SPIFFE://acme.example/acme/bot',
    'spiffe:acme/bot',
    'spiffe://acme.example/acme/bot,DNS:evil',
    'spiffe://acme.example/acme/bot\0',
  ]
  for (const id of refused) t.equal(await named(id), 'spiffe_mismatch', JSON.stringify(id))
  t.equal(await named('https://acme.example/bot'), 'accepted', 'another kind of URI')
  const good = 'spiffe://acme.example/acme/bot'
  t.equal(await named(good, 'spiffe://acme.example/acme/root'), 'spiffe_ambiguous')
  t.equal(await named(good, good), 'spiffe_ambiguous')
  t.equal(await named('https://acme.example/bot', good), 'spiffe_ambiguous')
  const leaf = await odd({ extensions: [...CLIENT, alternativeNames([uri(good)])] }, intermediate)
  t.match(await enrol({ certPem: leaf.pem + intermediate.pem, privateKeyPem: keyOf(leaf) }), {
    spiffeId: good,
  })
})

await t.test('M-12 a mutated certificate is refused with a reason, and never enrolled', async (t) => {
  const raw = client.x509.raw
  const change = fc.tuple(fc.nat(raw.length - 1), fc.integer({ min: 1, max: 255 }))
  const changes = fc.uniqueArray(change, { minLength: 1, maxLength: 4, selector: ([at]) => at })
  await fc.assert(
    fc.asyncProperty(changes, async (some) => {
      const bytes = Buffer.from(raw)
      for (const [at, by] of some) bytes[at] = (bytes[at] ?? 0) ^ by
      const leaf = `-----BEGIN CERTIFICATE-----\n${bytes.toString('base64')}\n-----END CERTIFICATE-----\n`
      return (await reasonOf({ certPem: leaf + intermediate.pem })) !== 'accepted'
    }),
    { numRuns: 200 },
  )
  t.equal(await reasonOf({}), 'accepted')
})

await t.test(
  '§5.3 what openssl makes is enrolled, and signed with SHA-1 it is not',
  { skip: without('openssl') },
  async (t) => {
    const made = (digest: string) => {
      const names = 'subjectAltName=URI:spiffe://acme.example/acme/bot'
      const directory = t.testdir({
        'a.ext': `keyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n${names}\n`,
      })
      const run = (line: string) => {
        const { status, text } = openssl(directory, line.split(' '))
        if (status !== 0) throw new Error(text)
      }
      run('req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /O=acme/CN=acme -days 2')
      run('ecparam -name prime256v1 -genkey -out a.key')
      run('req -new -key a.key -out a.csr -subj /CN=bot')
      run(
        `x509 -req -in a.csr -CA ca.pem -CAkey ca.key -set_serial 7 -${digest} -extfile a.ext -days 1 -out a.pem`,
      )
      const read = (name: string) => readFileSync(join(directory, name), 'utf8')
      const at = Date.now() + 60_000
      return { certPem: read('a.pem'), privateKeyPem: read('a.key'), caPems: [read('ca.pem')], at }
    }
    t.match(await enrol(made('sha256')), { spiffeId: 'spiffe://acme.example/acme/bot' })
    t.equal(await reasonOf(made('sha1')), 'signature_too_weak')
  },
)
