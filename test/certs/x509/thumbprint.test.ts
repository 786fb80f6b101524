import { X509Certificate } from 'node:crypto'
import t from 'tap'
import { thumbprintOf } from '../../../certs/x509/x509.ts'
import { madeAuthority } from '../../support/certs/made.ts'

await t.test(
  'M-03 a thumbprint is the lower-case hex SHA-256 of the bytes (known vector, RFC 6234 §8.5)',
  async (t) => {
    t.equal(
      thumbprintOf(Buffer.from('abc')),
      'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
    )
  },
)

await t.test('M-03 it is what OpenSSL calls the fingerprint of the certificate', async (t) => {
  const { rootPem } = await madeAuthority()
  const root = new X509Certificate(rootPem)
  t.equal(thumbprintOf(root.raw), root.fingerprint256.replaceAll(':', '').toLowerCase())
})
