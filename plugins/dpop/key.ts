import { constants, createPublicKey, hash, type KeyObject, verify } from 'node:crypto'
import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { decodeBase64url } from './jwt.ts'

/** The algorithms whose signatures are checked (RFC 9449 §4.3-5); two are one (RFC 9864). */
export const PROOF_ALGORITHMS = ['ES256', 'PS256', 'EdDSA', 'Ed25519'] as const
export type ProofAlgorithm = (typeof PROOF_ALGORITHMS)[number]

export interface ProofKey {
  /** The names of the one algorithm that it is for. */
  readonly algorithms: readonly ProofAlgorithm[]
  /** RFC 7638 thumbprint, SHA-256, base64url. */
  readonly jkt: string
  /** Returns whether `signature` (as in a JWS, RFC 7518 §3.4) is by this key over `signed`. */
  readonly verify: (signed: string, signature: Buffer) => boolean
}

// Members of private and symmetric keys only (RFC 7518 §6): a client that sends one has lost its key.
const SECRET_MEMBERS = ['d', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'k']
const RSA_MIN_BITS = 2_048
const RSA_MAX_BITS = 4_096
// 1 signs nothing, an even one is none, and a long one makes a signature check cost as much as a signature.
const RSA_MIN_EXPONENT = 3n
const RSA_MAX_EXPONENT = 0xffff_ffffn

/**
 * Reads a public JWK, or returns null: EC P-256 (ES256), RSA of 2048 to 4096 bits (PS256) or Ed25519 (EdDSA),
 * without private members, every coordinate of its full length, the point on its curve, no number with
 * leading zeros (RFC 7518 §6.3.1). Costs as much as half a signature check.
 */
export function proofKey(jwk: unknown): ProofKey | null {
  if (!isObject(jwk)) return null
  if (SECRET_MEMBERS.some((name) => Object.hasOwn(jwk, name))) return null
  const canonical = canonicalOf(jwk)
  if (!canonical) return null
  return importKey(canonical, hash('sha256', JSON.stringify(canonical), 'base64url'))
}

/** The required members alone, in the order that RFC 7638 §3.3 demands. */
function canonicalOf({ kty, crv, x, y, n, e }: UnknownRecord): Record<string, string> | null {
  if (kty === 'EC' && crv === 'P-256' && isBytes(x, 32) && isBytes(y, 32)) return { crv, kty, x, y }
  if (kty === 'OKP' && crv === 'Ed25519' && isBytes(x, 32)) return { crv, kty, x }
  if (kty === 'RSA' && isNumber(n) && isNumber(e)) return { e, kty, n }
  return null
}

const bytesOf = (value: unknown): Buffer | null =>
  typeof value === 'string' && value.length <= 1_024 ? decodeBase64url(value) : null

const isBytes = (value: unknown, length: number): value is string => bytesOf(value)?.length === length

const isNumber = (value: unknown): value is string => (bytesOf(value)?.[0] ?? 0) !== 0

function importKey(canonical: Record<string, string>, jkt: string): ProofKey | null {
  let key: KeyObject
  try {
    key = createPublicKey({ key: canonical, format: 'jwk' })
  } catch {
    // Not a point of the curve, or not a modulus: nothing that could have signed.
    return null
  }
  if (canonical.kty === 'EC') {
    return { algorithms: ['ES256'], jkt, verify: (signed, signature) => verifyEs256(key, signed, signature) }
  }
  if (canonical.kty === 'OKP') {
    return {
      algorithms: ['EdDSA', 'Ed25519'],
      jkt,
      verify: (signed, signature) => verify(null, Buffer.from(signed), key, signature),
    }
  }
  const { modulusLength: bits = 0, publicExponent: e = 0n } = key.asymmetricKeyDetails ?? {}
  if (bits < RSA_MIN_BITS || bits > RSA_MAX_BITS) return null
  if (e < RSA_MIN_EXPONENT || e > RSA_MAX_EXPONENT || e % 2n === 0n) return null
  const pss = { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 32 }
  return {
    algorithms: ['PS256'],
    jkt,
    verify: (signed, signature) => verify('sha256', Buffer.from(signed), pss, signature),
  }
}

// Node converts r‖s to DER itself, at a quarter of the cost of the check: by hand it is nearly free.
function verifyEs256(key: KeyObject, signed: string, signature: Buffer): boolean {
  if (signature.length !== 64) return false
  return verify('sha256', Buffer.from(signed), key, derOf(signature))
}

/** Returns the ECDSA-Sig-Value (RFC 3279 §2.2.3) of r‖s, 32 bytes each. */
export function derOf(signature: Buffer): Buffer {
  const der = Buffer.allocUnsafe(72)
  const end = writeInteger(der, writeInteger(der, 2, signature, 0), signature, 32)
  der[0] = 0x30
  der[1] = end - 2
  return der.subarray(0, end)
}

/** Writes the 32 bytes at `from` as an ASN.1 INTEGER at `at`; returns its end. */
function writeInteger(der: Buffer, at: number, signature: Buffer, from: number): number {
  const last = from + 31
  let start = from
  while (start < last && signature[start] === 0) start += 1
  // A leading bit of one would make it negative.
  const sign = (signature[start] ?? 0) >= 0x80 ? 1 : 0
  const length = last + 1 - start
  der[at] = 0x02
  der[at + 1] = length + sign
  if (sign === 1) der[at + 2] = 0
  signature.copy(der, at + 2 + sign, start, last + 1)
  return at + 2 + sign + length
}
