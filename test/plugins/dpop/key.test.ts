import { generateKeyPairSync, type KeyObject, randomBytes, sign, verify } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { derOf, proofKey } from '../../../plugins/dpop/key.ts'
import { runsOf } from '../../support/sweep-places.ts'

type Jwk = Record<string, unknown>

const jwkOf = (key: KeyObject): Jwk => ({ ...key.export({ format: 'jwk' }) })
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 })
const ed = generateKeyPairSync('ed25519')
const EC = jwkOf(ec.publicKey)
const RSA = jwkOf(rsa.publicKey)
const ED = jwkOf(ed.publicKey)

const bytesOf = (value: unknown): Buffer => Buffer.from(String(value), 'base64url')
const text = (...parts: readonly (Buffer | readonly number[])[]): string =>
  Buffer.concat(parts.map((part) => Buffer.from(part))).toString('base64url')

await t.test('D-29 RFC 7638 §3.1 the thumbprint of the example key is the one in the RFC', async (t) => {
  const n =
    '0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw'
  const key = proofKey({ kty: 'RSA', n, e: 'AQAB', alg: 'RS256', kid: '2011-04-29' })
  t.equal(key?.jkt, 'NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs')
})

await t.test('D-29 RFC 9449 §6.1 the thumbprint of the example key is the one in the RFC', async (t) => {
  const x = 'l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs'
  const y = '9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA'
  t.equal(proofKey({ kty: 'EC', crv: 'P-256', x, y })?.jkt, '0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I')
})

await t.test('D-08 each kind of key verifies its one algorithm, and nothing of another key', async (t) => {
  const pss = { key: rsa.privateKey, padding: 6, saltLength: 32 }
  const p1363 = { key: ec.privateKey, dsaEncoding: 'ieee-p1363' } as const
  const signed = Buffer.from('header.claims')
  for (const [algorithm, jwk, signature] of [
    ['ES256', EC, sign('sha256', signed, p1363)],
    ['PS256', RSA, sign('sha256', signed, pss)],
    ['EdDSA', ED, sign(null, signed, ed.privateKey)],
  ] as const) {
    const key = proofKey(jwk)
    t.equal(key?.algorithms[0], algorithm)
    t.equal(key?.verify('header.claims', signature), true, algorithm)
    t.equal(key?.verify('header.claimz', signature), false, `${algorithm} over another text`)
    t.equal(key?.verify('header.claims', randomBytes(signature.length)), false, `${algorithm}, made up`)
  }
  // PKCS #1 v1.5 is another algorithm, and so is another salt.
  t.equal(proofKey(RSA)?.verify('header.claims', sign('sha256', signed, rsa.privateKey)), false, 'RS256')
  const long = sign('sha256', signed, { ...pss, saltLength: 64 })
  t.equal(proofKey(RSA)?.verify('header.claims', long), false, 'PS256 with 64 bytes of salt')
})

await t.test(
  'D-10 RFC 9449 §4.3-7 a key with a private member is refused, whatever the member holds',
  async (t) => {
    for (const name of ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']) {
      for (const value of ['', 'AQAB', null, [], bytesOf(EC.x).toString('base64url')]) {
        t.equal(proofKey({ ...EC, [name]: value }), null, `${name} in an EC key`)
        t.equal(proofKey({ ...RSA, [name]: value }), null, `${name} in an RSA key`)
      }
    }
    for (const { privateKey } of [ec, rsa, ed]) t.equal(proofKey(jwkOf(privateKey)), null)
  },
)

await t.test('D-09 a key that is not exactly one key of its kind is refused', async (t) => {
  const x = bytesOf(EC.x)
  const y = bytesOf(EC.y)
  const wrong: Record<string, unknown> = {
    'no object': 'EC',
    null: null,
    'an array': [EC],
    'another kind': { ...EC, kty: 'oct' },
    'kind in lower case': { ...EC, kty: 'ec' },
    'P-384': jwkOf(generateKeyPairSync('ec', { namedCurve: 'P-384' }).publicKey),
    secp256k1: jwkOf(generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).publicKey),
    X25519: jwkOf(generateKeyPairSync('x25519').publicKey),
    Ed448: jwkOf(generateKeyPairSync('ed448').publicKey),
    'a point off the curve': { ...EC, y: text(randomBytes(32)) },
    'the point (0, 0)': { ...EC, x: text(Buffer.alloc(32)), y: text(Buffer.alloc(32)) },
    'x of 31 bytes': { ...EC, x: text(x.subarray(1)) },
    'x of 33 bytes': { ...EC, x: text([0], x) },
    'x with a tail bit': { ...EC, x: otherTail(String(EC.x)) },
    'x with padding': { ...EC, x: `${String(EC.x)}=` },
    'x as base64': { ...EC, x: Buffer.concat([x]).toString('base64') },
    'y in place of x, swapped': { ...EC, x: text(y), y: text(x) },
    'no y': { kty: 'EC', crv: 'P-256', x: EC.x },
    'x a number': { ...EC, x: 1 },
    'RSA of 1024 bits': jwkOf(generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey),
    'RSA of 8192 bits': { ...RSA, n: text([0x80], randomBytes(1022), [1]) },
    'an exponent of 1': { ...RSA, e: 'AQ' },
    'an even exponent': { ...RSA, e: text([1, 0, 0]) },
    'an exponent of 64 bits': { ...RSA, e: text([1, 0, 0, 0, 0, 0, 0, 1]) },
    'an exponent as long as the modulus': { ...RSA, e: text(Buffer.alloc(255, 255)) },
    'an exponent with a leading zero': { ...RSA, e: text([0, 1, 0, 1]) },
    'a modulus with a leading zero': { ...RSA, n: text([0], bytesOf(RSA.n)) },
    'an empty modulus': { ...RSA, n: '' },
    'Ed25519 of 31 bytes': { ...ED, x: text(bytesOf(ED.x).subarray(1)) },
  }
  for (const [name, jwk] of Object.entries(wrong)) t.equal(proofKey(jwk), null, name)
})

/** The same bytes in another text: the bits behind the last whole byte are not zero. */
function otherTail(base64url: string): string {
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  return base64url.slice(0, -1) + alphabet.charAt(alphabet.indexOf(base64url.slice(-1)) | 1)
}

await t.test('RFC 7638 §3 the same key has the same thumbprint, in whatever dress', async (t) => {
  const dressed = { use: 'sig', kid: 'k', y: EC.y, x: EC.x, crv: 'P-256', kty: 'EC', alg: 'ES256' }
  t.equal(proofKey(dressed)?.jkt, proofKey(EC)?.jkt)
})

await t.test('RFC 7518 §3.4 the DER that we make of r and s is what node makes of them', async (t) => {
  const part = fc.oneof(
    fc.uint8Array({ minLength: 32, maxLength: 32 }),
    // Numbers with leading zeros and with a leading bit of one, where DER differs in length.
    fc
      .tuple(fc.integer({ min: 0, max: 32 }), fc.uint8Array({ minLength: 32, maxLength: 32 }))
      .map(([zeros, bytes]) => bytes.fill(0, 0, zeros)),
  )
  fc.assert(
    fc.property(part, part, (r, s) => {
      const [tag, length, ...body] = derOf(Buffer.concat([r, s]))
      if (tag !== 0x30 || length !== body.length) return false
      const integers = [integerAt(body, 0), integerAt(body, 2 + (body[1] ?? 0))]
      return integers.every(
        (found, i) => found === BigInt(`0x${Buffer.from(i === 0 ? r : s).toString('hex')}`),
      )
    }),
    { numRuns: runsOf(10_000) },
  )
  for (let i = 0; i < 500; i += 1) {
    const signed = randomBytes(8)
    const raw = sign('sha256', signed, { key: ec.privateKey, dsaEncoding: 'ieee-p1363' })
    t.ok(verify('sha256', signed, ec.publicKey, derOf(raw)))
  }
})

/** One DER INTEGER, minimal and not negative, or null. */
function integerAt(der: readonly number[], at: number): bigint | null {
  const length = der[at + 1] ?? 0
  const [first = 0, second = 0] = der.slice(at + 2, at + 4)
  const isMinimal = length === 1 || first !== 0 || second >= 0x80
  if (der[at] !== 0x02 || length < 1 || first >= 0x80 || !isMinimal) return null
  return BigInt(`0x${Buffer.from(der.slice(at + 2, at + 2 + length)).toString('hex')}`)
}

await t.test('D-09 r or s of zero, or at the order of the curve, is no signature', async (t) => {
  const n = Buffer.from('ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551', 'hex')
  const zero = Buffer.alloc(32)
  const key = proofKey(EC)
  for (const r of [zero, n, Buffer.alloc(32, 255)]) {
    for (const s of [zero, n, Buffer.alloc(32, 255)]) {
      t.equal(key?.verify('header.claims', Buffer.concat([r, s])), false)
    }
  }
  const good = sign('sha256', Buffer.from('header.claims'), { key: ec.privateKey, dsaEncoding: 'ieee-p1363' })
  t.equal(key?.verify('header.claims', good.subarray(1)), false, '63 bytes')
  t.equal(key?.verify('header.claims', Buffer.concat([good, Buffer.alloc(1)])), false, '65 bytes')
  t.equal(key?.verify('header.claims', derOf(good)), false, 'DER')
})

await t.test('D-06 no JWK makes more of us than a key or a no', async () => {
  const member = fc.oneof(
    fc.constantFrom(EC.x, EC.y, RSA.n, 'AQAB', ED.x, 'EC', 'RSA', 'OKP', 'oct', 'P-256', 'Ed25519', ''),
    fc.uint8Array({ maxLength: 66 }).map((bytes) => text(Buffer.from(bytes))),
    fc.jsonValue(),
  )
  const names = ['kty', 'crv', 'x', 'y', 'n', 'e', 'd', 'k', 'alg', '__proto__', 'constructor']
  const entries = fc.array(fc.tuple(fc.constantFrom(...names), member))
  const jwks = fc.oneof(
    entries.map((pairs) => Object.fromEntries(pairs)),
    entries.map((pairs) => ({ ...EC, ...Object.fromEntries(pairs) })),
    entries.map((pairs) => ({ ...RSA, ...Object.fromEntries(pairs) })),
    fc.jsonValue(),
  )
  fc.assert(
    fc.property(jwks, fc.uint8Array({ maxLength: 80 }), (jwk, signature) => {
      const key = proofKey(jwk)
      return key === null || !key.verify('header.claims', Buffer.from(signature))
    }),
    { numRuns: runsOf(10_000) },
  )
})
