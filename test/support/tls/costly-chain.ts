import { createPrivateKey, createPublicKey, generatePrimeSync, type KeyObject, sign } from 'node:crypto'

/** A client's chain and the key of its first certificate. PEM. */
export interface Chain {
  readonly cert: string
  readonly key: string
}

/**
 * Makes a chain of so many certificates of one RSA-3072 key whose public exponent is as long as its modulus:
 * each signature takes a verifier as long as it took the signer.
 */
export function costlyChain(length: number): Chain {
  const key = costlyKey()
  return chainOf(
    key,
    Array.from({ length }, () => key),
  )
}

/** Makes a chain of one certificate for each key: each is signed by the next one, the last by itself. */
export function chainOf(first: KeyObject, keys: readonly KeyObject[]): Chain {
  const certs = keys.map((key, i) =>
    certificate(key, `c${i}`, keys[i + 1] ?? key, keys[i + 1] ? `c${i + 1}` : `c${i}`),
  )
  return { cert: certs.map(pem).join(''), key: String(first.export({ type: 'pkcs8', format: 'pem' })) }
}

export function costlyKey(): KeyObject {
  const [p, q] = [prime(), prime()]
  const phi = (p - 1n) * (q - 1n)
  // The inverse of a small number is as long as the modulus.
  let d = 65_537n
  while (gcd(d, phi) !== 1n) d += 2n
  const member = (value: bigint) => integerBytes(value).toString('base64url')
  const e = inverse(d, phi)
  const jwk = { kty: 'RSA', n: member(p * q), e: member(e), d: member(d), p: member(p), q: member(q) }
  const crt = { dp: member(d % (p - 1n)), dq: member(d % (q - 1n)), qi: member(inverse(q, p)) }
  return createPrivateKey({ key: { ...jwk, ...crt }, format: 'jwk' })
}

const prime = (): bigint => generatePrimeSync(1536, { bigint: true, safe: false })
const gcd = (a: bigint, b: bigint): bigint => (b === 0n ? a : gcd(b, a % b))

function inverse(value: bigint, modulus: bigint): bigint {
  let [a, b, x, y] = [value % modulus, modulus, 1n, 0n]
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y]
  return ((x % modulus) + modulus) % modulus
}

/** An X.509 certificate of version 3 for a CA, in DER. */
export function certificate(key: KeyObject, subject: string, issuerKey: KeyObject, issuer: string): Buffer {
  const isRsa = issuerKey.asymmetricKeyType === 'rsa'
  const algorithm = isRsa
    ? Buffer.from('300d06092a864886f70d01010b0500', 'hex')
    : Buffer.from('300a06082a8648ce3d040302', 'hex')
  const validity = der(0x30, der(0x17, Buffer.from('200101000000Z')), der(0x17, Buffer.from('490101000000Z')))
  const spki = createPublicKey(key).export({ type: 'spki', format: 'der' })
  const isCa = der(0x30, Buffer.from('0603551d130101ff', 'hex'), der(0x04, Buffer.from('30030101ff', 'hex')))
  const tbs = der(
    0x30,
    Buffer.from('a003020102', 'hex'),
    der(0x02, Buffer.from([1])),
    algorithm,
    name(issuer),
    validity,
    name(subject),
    spki,
    der(0xa3, der(0x30, isCa)),
  )
  const signature = sign('sha256', tbs, issuerKey)
  return der(0x30, tbs, algorithm, der(0x03, Buffer.from([0]), signature))
}

/** One element: its tag, its length, its content. */
function der(tag: number, ...content: readonly Buffer[]): Buffer {
  const bytes = Buffer.concat(content)
  if (bytes.length < 0x80) return Buffer.concat([Buffer.from([tag, bytes.length]), bytes])
  const length = integerBytes(BigInt(bytes.length))
  return Buffer.concat([Buffer.from([tag, 0x80 + length.length]), length, bytes])
}

/** A name of one common name. */
const name = (text: string): Buffer =>
  der(0x30, der(0x31, der(0x30, Buffer.from('0603550403', 'hex'), der(0x0c, Buffer.from(text)))))

function integerBytes(value: bigint): Buffer {
  const hex = value.toString(16)
  return Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex')
}

const pem = (bytes: Buffer): string =>
  [
    '-----BEGIN CERTIFICATE-----',
    ...(bytes.toString('base64').match(/.{1,64}/g) ?? []),
    '-----END CERTIFICATE-----\n',
  ].join('\n')
