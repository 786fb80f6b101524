import { createPublicKey, type KeyObject } from 'node:crypto'
import { CertificationRequest, Extensions, type GeneralName } from 'pkijs'
import { CertificateError } from '../certificate-error.ts'
import { type CertificateClaims, claimsOf, claimsToBeCa } from '../x509/chain-link.ts'
import {
  isSignatureBy,
  isStrong,
  STRONG_KEY,
  STRONG_SIGNATURE,
  signatureAlgorithmOf,
} from '../x509/strength.ts'
import { decodeAsn1, type ExtensionHolder, OID } from '../x509/x509.ts'
import { isSoleUri } from './spiffe-id.ts'

/** The key and the names of a certificate request; possession of the key is proven. */
export interface CsrRequest {
  readonly publicKey: KeyObject
  /** The requested subjectAltName; empty if there is none. */
  readonly names: readonly GeneralName[]
}

const PEM_LIMIT = 65_536
// Nothing but space around it: other text there was meant for somebody, and not for us.
const PEM =
  /^\s*-----BEGIN (NEW )?CERTIFICATE REQUEST-----([A-Za-z0-9+/=\s]+)-----END \1CERTIFICATE REQUEST-----\s*$/
/**
 * The attributes in which a request carries extensions: PKCS#9 extensionRequest (RFC 2985 §5.4.2), and
 * Microsoft's older number for it.
 */
const EXTENSION_REQUESTS: readonly string[] = ['1.2.840.113549.1.9.14', '1.3.6.1.4.1.311.2.1.14']
// Read and judged here. Any other that its sender calls critical would be left out in silence.
const UNDERSTOOD: readonly string[] = [
  OID.basicConstraints,
  OID.keyUsage,
  OID.extendedKeyUsage,
  OID.subjectAltName,
  OID.subjectKeyIdentifier,
]

/**
 * Reads one PKCS#10 request in PEM (RFC 2986) and proves by its own signature that its sender holds the
 * private key. Throws a {@link CertificateError} with any reason but `foreign_san`: only the issuer knows the
 * name that it may request.
 */
export async function readCsr(csrPem: string): Promise<CsrRequest> {
  try {
    const request = requestOf(csrPem)
    const publicKey = publicKeyOf(request)
    checkSignature(request, publicKey)
    const claims = claimsOf(requestedExtensions(request))
    checkClaims(claims)
    return { publicKey, names: claims.names }
  } catch (error) {
    if (error instanceof CertificateError) throw error
    throw new CertificateError('certificate_unreadable', 'The certificate request cannot be read.', error)
  }
}

/**
 * Returns the public key of a request that asks for that name alone, or for none. Only this key of the
 * request goes into a certificate (docs/protocol.md#csr): subject, names, usages and lifetime are the
 * issuer's. Throws a {@link CertificateError}.
 */
export async function keyOfCsr(csrPem: string, spiffeId: string): Promise<KeyObject> {
  const { publicKey, names } = await readCsr(csrPem)
  if (names.length === 0 || isSoleUri(names, spiffeId)) return publicKey
  const message = `The request asks for names other than ${spiffeId}. Ask for that name only, or for none.`
  throw new CertificateError('foreign_san', message)
}

function requestOf(pem: string): CertificationRequest {
  const base64 = pem.length > PEM_LIMIT ? undefined : PEM.exec(pem)?.[2]
  if (base64 === undefined) {
    throw new CertificateError(
      'certificate_unreadable',
      'The text is not exactly one PEM certificate request of at most 64 KiB.',
    )
  }
  return new CertificationRequest({ schema: decodeAsn1(Buffer.from(base64, 'base64')) })
}

function publicKeyOf({ subjectPublicKeyInfo }: CertificationRequest): KeyObject {
  const spki = Buffer.from(subjectPublicKeyInfo.toSchema().toBER())
  const key = createPublicKey({ key: spki, format: 'der', type: 'spki' })
  // One that is bound to RSASSA-PSS has no plain form.
  if (!isStrong(key) || key.asymmetricKeyType === 'rsa-pss')
    throw new CertificateError('key_too_weak', `The key of the request is not ${STRONG_KEY}.`)
  // Rebuilt from its numbers: a curve spelled out instead of named, a compressed point or odd parameters
  // would otherwise stand in a certificate of ours, and not every verifier reads them alike.
  const plain = createPublicKey({ key: key.export({ format: 'jwk' }), format: 'jwk' })
  if (plain.export({ format: 'der', type: 'spki' }).equals(spki)) return plain
  throw new CertificateError(
    'key_too_weak',
    'The key of the request is not in its usual encoding (RFC 5480 §2, RFC 3279 §2.3.1).',
  )
}

function checkSignature(request: CertificationRequest, publicKey: KeyObject): void {
  const algorithm = signatureAlgorithmOf(request.signatureAlgorithm)
  if (!algorithm)
    throw new CertificateError('signature_too_weak', `The request is not signed with ${STRONG_SIGNATURE}.`)
  const { valueHexView: signature, unusedBits } = request.signatureValue.valueBlock
  if (unusedBits !== 0) throw new Error('a signature is made of whole bytes')
  const proven = isSignatureBy(publicKey, algorithm, request.tbsView, signature)
  if (proven) return
  throw new CertificateError(
    'signature_invalid',
    'The request is not signed by the private key that belongs to its public key.',
  )
}

function requestedExtensions({ attributes = [] }: CertificationRequest): ExtensionHolder {
  const [attribute, second] = attributes.filter(({ type }) => EXTENSION_REQUESTS.includes(type))
  if (!attribute) return {}
  if (second || attribute.values.length !== 1) throw new Error('the request asks for extensions twice')
  return { extensions: new Extensions({ schema: attribute.values[0] }).extensions }
}

function checkClaims(claims: CertificateClaims): void {
  if (claimsToBeCa(claims)) {
    throw new CertificateError(
      'ca_requested',
      'The request asks for a CA certificate. This endpoint issues client certificates.',
    )
  }
  if (claims.purposes?.some((purpose) => purpose !== OID.clientAuth)) {
    throw new CertificateError(
      'ca_requested',
      'The request asks for an extendedKeyUsage other than clientAuth.',
    )
  }
  const unknown = claims.critical.find((oid) => !UNDERSTOOD.includes(oid))
  if (unknown === undefined) return
  throw new CertificateError(
    'unknown_critical_extension',
    `The request asks for the critical extension ${unknown}.`,
  )
}
