import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import t from 'tap'
import { isKeyOf, readPrivateKey } from '../../../certs/enrollment/enrollment.ts'
import { odd } from '../../support/certs/made.ts'
import { openssl, without } from '../../support/certs/openssl.ts'

const rsa = () => generateKeyPairSync('rsa', { modulusLength: 2048 })
const ec = await odd({ extensions: [] })
const rsaKeys = rsa()
const rsaCertificate = await odd({ extensions: [], key: rsaKeys }, ec)

const pemOf = (key: KeyObject, type: 'pkcs1' | 'pkcs8' | 'sec1') =>
  key.export({ type, format: 'pem' }).toString()

await t.test(
  'M-14 a private key belongs to its certificate in any of its PEM forms, and to no other',
  async (t) => {
    for (const type of ['pkcs8', 'sec1'] as const)
      t.equal(isKeyOf(ec.x509, readPrivateKey(pemOf(ec.key, type))), true, type)
    for (const type of ['pkcs8', 'pkcs1'] as const)
      t.equal(isKeyOf(rsaCertificate.x509, readPrivateKey(pemOf(rsaKeys.privateKey, type))), true, type)
    t.equal(isKeyOf(ec.x509, (await odd({ extensions: [] })).key), false)
    t.equal(isKeyOf(ec.x509, rsaKeys.privateKey), false)
    t.equal(isKeyOf(rsaCertificate.x509, rsa().privateKey), false)
  },
)

await t.test(
  'M-14 a stranger’s secret beside the public half of the certificate proves nothing',
  async (t) => {
    const stranger = (await odd({ extensions: [] })).key
    const der = ec.key.export({ type: 'sec1', format: 'der' })
    const secret = (key: KeyObject) => Buffer.from(key.export({ format: 'jwk' }).d ?? '', 'base64url')
    secret(stranger).copy(der, der.indexOf(secret(ec.key)))
    const forged = readPrivateKey(pem('EC PRIVATE KEY', der))
    t.equal(ec.x509.checkPrivateKey(forged), true, 'OpenSSL is deceived by it')
    t.equal(isKeyOf(ec.x509, forged), false)
  },
)

await t.test('M-14 what is no open private key is refused with an Error', async (t) => {
  const sealed = { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' } as const
  const legacy = { ...sealed, type: 'sec1' } as const
  const refused = [
    '',
    'hello',
    ec.pem,
    ec.x509.publicKey.export({ type: 'spki', format: 'pem' }).toString(),
    ec.key.export(sealed).toString(),
    ec.key.export(legacy).toString(),
    pem('PRIVATE KEY', Buffer.from('hello')),
  ]
  for (const text of refused) t.throws(() => readPrivateKey(text), Error, text.slice(0, 40))
  t.throws(() => readPrivateKey(pemOf(ec.key, 'pkcs8') + ' '.repeat(10_000_000)), /longer than 16384/)
})

await t.test(
  'M-14 a key as openssl ecparam writes it, parameters first, is read',
  { skip: without('openssl') },
  async (t) => {
    const { text } = openssl(t.testdir({}), ['ecparam', '-name', 'prime256v1', '-genkey'])
    t.match(text, /^-----BEGIN EC PARAMETERS-----/)
    t.equal(readPrivateKey(text).asymmetricKeyType, 'ec')
  },
)

function pem(label: string, der: Buffer): string {
  return `-----BEGIN ${label}-----\n${der.toString('base64')}\n-----END ${label}-----\n`
}
