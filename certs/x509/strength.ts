import { constants, type KeyObject, verify } from 'node:crypto'
import { AlgorithmIdentifier, RSASSAPSSParams } from 'pkijs'

const CURVES: readonly string[] = ['prime256v1', 'secp384r1', 'secp521r1']
// Longer keys only buy the caller our processor time.
const RSA_BITS = { min: 2048, max: 8192 }
// FIPS 186-5 §5.4: odd, above 2^16, below 2^256.
const RSA_EXPONENT = { min: 65_537n, below: 2n ** 256n }

/** The keys that are strong enough, as a sentence ends. */
export const STRONG_KEY = 'EC P-256, P-384 or P-521, Ed25519, or RSA of 2048 to 8192 bits'

/**
 * Tells whether a public key is strong enough for every certificate that we read or issue. Unknown kinds are
 * not.
 */
export function isStrong({ asymmetricKeyType, asymmetricKeyDetails = {} }: KeyObject): boolean {
  const { namedCurve, modulusLength = 0, publicExponent: exponent = 0n } = asymmetricKeyDetails
  const { hashAlgorithm = 'sha256' } = asymmetricKeyDetails
  if (asymmetricKeyType === 'ed25519') return true
  if (asymmetricKeyType === 'ec') return CURVES.includes(namedCurve ?? '')
  if (asymmetricKeyType !== 'rsa' && asymmetricKeyType !== 'rsa-pss') return false
  if (!DIGESTS.includes(hashAlgorithm)) return false
  if (modulusLength < RSA_BITS.min || modulusLength > RSA_BITS.max) return false
  return exponent >= RSA_EXPONENT.min && exponent < RSA_EXPONENT.below && exponent % 2n === 1n
}

export type StrongDigest = 'sha256' | 'sha384' | 'sha512'

const DIGESTS: readonly string[] = ['sha256', 'sha384', 'sha512']

export interface SignatureAlgorithm {
  /** The kinds of keys that make it, as node:crypto calls them. */
  readonly keyTypes: readonly string[]
  /** Null: the algorithm has its own. */
  readonly digest: StrongDigest | null
  /** Bytes of salt of RSASSA-PSS, which the signature states; null for any other. */
  readonly saltLength: number | null
}

/** The signatures that are accepted, as a sentence ends. */
export const STRONG_SIGNATURE = 'ECDSA, RSA or RSASSA-PSS and SHA-256 or better, or Ed25519'

/** Algorithms by OID: ECDSA and RSA PKCS#1 v1.5, each with SHA-256, SHA-384, SHA-512, and Ed25519 (RFC 8410). */
export const SIGNATURE_ALGORITHMS: ReadonlyMap<string, SignatureAlgorithm> = new Map([
  ['1.2.840.10045.4.3.2', plainAlgorithm('ec', 'sha256')],
  ['1.2.840.10045.4.3.3', plainAlgorithm('ec', 'sha384')],
  ['1.2.840.10045.4.3.4', plainAlgorithm('ec', 'sha512')],
  ['1.2.840.113549.1.1.11', plainAlgorithm('rsa', 'sha256')],
  ['1.2.840.113549.1.1.12', plainAlgorithm('rsa', 'sha384')],
  ['1.2.840.113549.1.1.13', plainAlgorithm('rsa', 'sha512')],
  ['1.3.101.112', plainAlgorithm('ed25519', null)],
])
const RSASSA_PSS = '1.2.840.113549.1.1.10'
/** Digests by OID. */
export const STRONG_DIGESTS: ReadonlyMap<string, StrongDigest> = new Map([
  ['2.16.840.1.101.3.4.2.1', 'sha256'],
  ['2.16.840.1.101.3.4.2.2', 'sha384'],
  ['2.16.840.1.101.3.4.2.3', 'sha512'],
])
/** The length of the longest key. Bytes. */
const MAX_SALT = 1024

function plainAlgorithm(keyType: string, digest: StrongDigest | null): SignatureAlgorithm {
  return { keyTypes: [keyType], digest, saltLength: null }
}

/**
 * Finds the algorithm of a signature; null if it is not accepted. RSASSA-PSS states its digests as parameters
 * (RFC 4055 §3.1): both must be the same. Throws an Error if they are malformed.
 */
export function signatureAlgorithmOf({
  algorithmId,
  algorithmParams,
}: Pick<AlgorithmIdentifier, 'algorithmId' | 'algorithmParams'>): SignatureAlgorithm | null {
  if (algorithmId !== RSASSA_PSS) return SIGNATURE_ALGORITHMS.get(algorithmId) ?? null
  // Absent, as each of its members: SHA-1.
  if (!algorithmParams) return null
  const { hashAlgorithm, maskGenAlgorithm, saltLength, trailerField } = new RSASSAPSSParams({
    schema: algorithmParams,
  })
  const digest = STRONG_DIGESTS.get(hashAlgorithm.algorithmId)
  const mask = new AlgorithmIdentifier({ schema: maskGenAlgorithm.algorithmParams }).algorithmId
  if (!digest || mask !== hashAlgorithm.algorithmId || trailerField !== 1 || !(saltLength <= MAX_SALT))
    return null
  return { keyTypes: ['rsa', 'rsa-pss'], digest, saltLength }
}

/** Tells whether a signature over these bytes is by that key. */
export function isSignatureBy(
  publicKey: KeyObject,
  { keyTypes, digest, saltLength }: SignatureAlgorithm,
  signed: Uint8Array,
  signature: Uint8Array,
): boolean {
  if (!keyTypes.includes(publicKey.asymmetricKeyType ?? '')) return false
  const padding = saltLength !== null && { padding: constants.RSA_PKCS1_PSS_PADDING, saltLength }
  return verify(digest, signed, { key: publicKey, ...padding }, signature)
}
