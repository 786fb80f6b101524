import type { KeyObject } from 'node:crypto'

const CURVES: readonly string[] = ['prime256v1', 'secp384r1', 'secp521r1']
// Longer keys only buy the caller our processor time.
const RSA_BITS = { min: 2048, max: 8192 }
// FIPS 186-5 §5.4: odd, above 2^16, below 2^256.
const RSA_EXPONENT = { min: 65_537n, below: 2n ** 256n }

/** The keys that are strong enough, as a sentence ends. */
export const STRONG_KEY = 'EC P-256, P-384 or P-521, or RSA of 2048 to 8192 bits'

/**
 * Tells whether a public key is strong enough for every certificate that we read or issue. Unknown kinds are
 * not.
 */
export function isStrong({ asymmetricKeyType, asymmetricKeyDetails = {} }: KeyObject): boolean {
  const { namedCurve, modulusLength = 0, publicExponent: exponent = 0n } = asymmetricKeyDetails
  if (asymmetricKeyType === 'ec') return CURVES.includes(namedCurve ?? '')
  if (asymmetricKeyType !== 'rsa' || modulusLength < RSA_BITS.min || modulusLength > RSA_BITS.max)
    return false
  return exponent >= RSA_EXPONENT.min && exponent < RSA_EXPONENT.below && exponent % 2n === 1n
}

interface SignatureAlgorithm {
  /** The kind of key that makes it, as node:crypto calls it. */
  readonly keyType: 'ec' | 'rsa'
  readonly digest: 'sha256' | 'sha384' | 'sha512'
}

/**
 * The signatures that are accepted, by OID: ECDSA and RSA PKCS#1 v1.5, each with SHA-256, SHA-384, SHA-512.
 * RSASSA-PSS hides its digest in parameters: not taken.
 */
export const SIGNATURE_ALGORITHMS: ReadonlyMap<string, SignatureAlgorithm> = new Map([
  ['1.2.840.10045.4.3.2', { keyType: 'ec', digest: 'sha256' }],
  ['1.2.840.10045.4.3.3', { keyType: 'ec', digest: 'sha384' }],
  ['1.2.840.10045.4.3.4', { keyType: 'ec', digest: 'sha512' }],
  ['1.2.840.113549.1.1.11', { keyType: 'rsa', digest: 'sha256' }],
  ['1.2.840.113549.1.1.12', { keyType: 'rsa', digest: 'sha384' }],
  ['1.2.840.113549.1.1.13', { keyType: 'rsa', digest: 'sha512' }],
])
