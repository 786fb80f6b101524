import { createPublicKey, generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto'
import t from 'tap'
import { isStrong } from '../../../certs/x509/strength.ts'

/** A public key of that many bits, which nobody can use: n is any odd number. */
function rsa(bits: number, exponent: readonly number[]): KeyObject {
  const n = randomBytes(bits / 8)
  n[0] = (n[0] ?? 0) | 0x80
  n[n.length - 1] = (n.at(-1) ?? 0) | 1
  const e = Buffer.from(exponent).toString('base64url')
  return createPublicKey({ key: { kty: 'RSA', n: n.toString('base64url'), e }, format: 'jwk' })
}

const USUAL = [1, 0, 1]

await t.test(
  'M-07 RSA keys of 2048 to 8192 bits are strong, shorter and longer ones are refused',
  async (t) => {
    for (const bits of [2048, 3072, 4096, 8192]) t.equal(isStrong(rsa(bits, USUAL)), true, `${bits}`)
    for (const bits of [1024, 2040, 8200, 16_384]) t.equal(isStrong(rsa(bits, USUAL)), false, `${bits}`)
  },
)

await t.test('FIPS 186-5 §5.4 an RSA exponent is odd and lies between 2^16 and 2^256', async (t) => {
  const e = (...bytes: number[]) => isStrong(rsa(2048, bytes))
  t.equal(e(1, 0, 3), true)
  t.equal(
    isStrong(
      rsa(
        2048,
        Array.from({ length: 32 }, () => 0xff),
      ),
    ),
    true,
  )
  for (const refused of [[1], [3], [0xff, 0xff], [1, 0, 0], [1, 0, 2]]) t.equal(e(...refused), false)
  t.equal(
    isStrong(
      rsa(
        2048,
        Array.from({ length: 33 }, () => 0xff),
      ),
    ),
    false,
  )
})

await t.test(
  'M-07 EC keys on P-256, P-384 and P-521, Ed25519 and keys for PSS are strong, other curves and kinds are not',
  async (t) => {
    const ec = (namedCurve: string) => isStrong(generateKeyPairSync('ec', { namedCurve }).publicKey)
    for (const curve of ['P-256', 'P-384', 'P-521']) t.equal(ec(curve), true, curve)
    for (const curve of ['prime192v1', 'secp224r1', 'secp256k1', 'brainpoolP256r1'])
      t.equal(ec(curve), false, curve)
    t.equal(isStrong(generateKeyPairSync('ed25519').publicKey), true)
    t.equal(isStrong(generateKeyPairSync('ed448').publicKey), false)
    const pss = (modulusLength: number, hashAlgorithm?: string) =>
      isStrong(
        generateKeyPairSync('rsa-pss', {
          modulusLength,
          ...(hashAlgorithm && { hashAlgorithm, mgf1HashAlgorithm: hashAlgorithm }),
        }).publicKey,
      )
    t.strictSame([pss(2048), pss(2048, 'sha512'), pss(2048, 'sha1'), pss(1024)], [true, true, false, false])
  },
)
