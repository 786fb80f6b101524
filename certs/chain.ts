import { createPrivateKey, type KeyObject, type X509Certificate } from 'node:crypto'
import { type Link, linksOf } from './chain-link.ts'
import { permitsNames } from './name-constraints.ts'
import { OID } from './x509.ts'

/** Why a chain is refused. One word for each, so that an enrolment can say which (WIRE.md §2). */
export type ChainReason =
  | 'unreadable'
  | 'not_chained'
  | 'path_too_long'
  | 'expired'
  | 'not_yet_valid'
  | 'weak_key'
  | 'weak_signature'
  | 'not_a_ca'
  | 'wrong_usage'
  | 'name_not_permitted'
  | 'unknown_critical_extension'

/** A certificate that is not to be trusted. The message is one plain sentence that a caller may see. */
export class ChainError extends Error {
  readonly reason: ChainReason

  constructor(reason: ChainReason, message: string, cause?: unknown) {
    super(message, { cause })
    this.reason = reason
  }
}

export interface Chain {
  /** The leaf first; may be followed by intermediates. */
  readonly leafPem: string
  /** Further intermediates, in any order. May be empty. */
  readonly intermediatesPem: string
  /** The CA certificates that the operator trusts. They need not be self-signed. */
  readonly rootsPem: string
  /** ms since the epoch. */
  readonly at: number
}

/** The leaf first, each followed by its issuer. */
type Path = readonly [Link, ...Link[]]

/** Leaf, intermediate, root: what SECURITY M-07 allows. A longer chain is met by trusting its second CA. */
const PATH_LIMIT = 3
/** More is no honest chain, and every one of them costs signature checks. */
const CANDIDATE_LIMIT = 8
const CURVES: readonly string[] = ['prime256v1', 'secp384r1', 'secp521r1']
const RSA_BITS = 2048
// ECDSA and RSA PKCS#1 v1.5, each with SHA-256, SHA-384, SHA-512. RSASSA-PSS hides its digest in parameters: not taken.
const SIGNATURES: readonly string[] = [
  '1.2.840.10045.4.3.2',
  '1.2.840.10045.4.3.3',
  '1.2.840.10045.4.3.4',
  '1.2.840.113549.1.1.11',
  '1.2.840.113549.1.1.12',
  '1.2.840.113549.1.1.13',
]
const UNDERSTOOD: readonly string[] = [
  OID.basicConstraints,
  OID.keyUsage,
  OID.extendedKeyUsage,
  OID.subjectAltName,
  OID.nameConstraints,
  OID.certificatePolicies,
  OID.subjectKeyIdentifier,
  OID.authorityKeyIdentifier,
]
const DIGITAL_SIGNATURE = 0x80
const KEY_CERT_SIGN = 0x04

/**
 * Whether a client's leaf chains to a trusted CA at that moment and may authenticate a client (RFC 5280 §6, SECURITY M-07).
 * Throws a {@link ChainError}; the first path that passes is enough, else the first path's fault is told.
 * Does NOT look at revocation, nor at whom the leaf names: `uriNamesOf` and the pin do.
 */
export async function verifyChain(chain: Chain): Promise<void> {
  try {
    checkChain(chain)
  } catch (error) {
    if (error instanceof ChainError) throw error
    // Not every malformed part is met while reading: a public key, for one, is decoded when it is first used.
    throw unreadable(error)
  }
}

function checkChain({ leafPem, intermediatesPem, rootsPem, at }: Chain): void {
  const [leaf, ...sent] = readLinks(leafPem)
  if (!leaf) throw new ChainError('unreadable', 'The text holds no PEM certificate.')
  const intermediates = [...sent, ...readLinks(intermediatesPem)]
  if (intermediates.length > CANDIDATE_LIMIT) {
    throw new ChainError(
      'path_too_long',
      `More than ${CANDIDATE_LIMIT} intermediate certificates were given.`,
    )
  }
  checkLeaf(leaf, at)
  let fault: ChainError | null = null
  for (const path of pathsFrom([leaf], intermediates, readLinks(rootsPem))) {
    const found = faultOf(path, at)
    if (found === null) return
    fault ??= found
  }
  throw fault ?? new ChainError('not_chained', 'The certificate does not chain to a trusted CA.')
}

/**
 * Whether the private key is the certificate's. Throws a {@link ChainError} `unreadable` where either cannot be read:
 * no PEM, a key sealed with a password, or a public key.
 */
export function keyMatches(certPem: string, privateKeyPem: string): boolean {
  const [leaf] = readLinks(certPem)
  if (!leaf) throw new ChainError('unreadable', 'The text holds no PEM certificate.')
  return leaf.x509.checkPrivateKey(readKey(privateKeyPem))
}

function readKey(pem: string): KeyObject {
  try {
    return createPrivateKey(pem)
  } catch (cause) {
    throw new ChainError('unreadable', 'The private key is not an unencrypted private key in PEM.', cause)
  }
}

function readLinks(pem: string): readonly Link[] {
  try {
    return linksOf(pem)
  } catch (cause) {
    throw unreadable(cause)
  }
}

function unreadable(cause: unknown): ChainError {
  return new ChainError('unreadable', 'A certificate cannot be read.', cause)
}

/** Every path to a root by name and signature alone; one step past the limit, to tell too long from unknown. */
function* pathsFrom(path: Path, intermediates: readonly Link[], roots: readonly Link[]): Generator<Path> {
  const child = path.at(-1) ?? path[0]
  for (const root of roots) if (issued(root, child)) yield [...path, root]
  if (path.length >= PATH_LIMIT) return
  for (const next of intermediates) {
    if (!path.includes(next) && issued(next, child)) yield* pathsFrom([...path, next], intermediates, roots)
  }
}

function issued(issuer: Link, child: Link): boolean {
  return child.x509.checkIssued(issuer.x509) && child.x509.verify(issuer.x509.publicKey)
}

function faultOf(path: Path, at: number): ChainError | null {
  try {
    checkPath(path, at)
    return null
  } catch (error) {
    if (error instanceof ChainError) return error
    throw error
  }
}

function checkPath(path: Path, at: number): void {
  if (path.length > PATH_LIMIT) {
    throw new ChainError('path_too_long', 'The chain is longer than leaf, intermediate, root.')
  }
  for (const [index, link] of path.entries()) {
    // The root's own signature proves nothing; everything below it stands or falls with its signature.
    if (index < path.length - 1) checkSignature(link)
    if (index > 0) checkIssuer(link, path.slice(0, index), at)
  }
}

function checkLeaf(leaf: Link, at: number): void {
  checkAny(leaf, at)
  if (leaf.constraints?.cA === true || allows(leaf, KEY_CERT_SIGN, false)) {
    throw new ChainError('wrong_usage', 'This is a CA certificate, not a client certificate.')
  }
  if (!allows(leaf, DIGITAL_SIGNATURE, true)) {
    throw new ChainError('wrong_usage', 'The keyUsage of the certificate does not allow digital signatures.')
  }
}

function checkIssuer(issuer: Link, below: readonly Link[], at: number): void {
  checkAny(issuer, at)
  const { constraints } = issuer
  if (constraints?.cA !== true || !allows(issuer, KEY_CERT_SIGN, true)) {
    throw new ChainError('not_a_ca', 'An issuer in the chain is not a CA certificate.')
  }
  const limit = constraints.pathLenConstraint
  if (limit !== undefined && !(typeof limit === 'number' && below.length - 1 <= limit)) {
    throw new ChainError('path_too_long', 'A CA of the chain allows fewer CAs below it.')
  }
  if (!permitsNames(issuer, below)) {
    throw new ChainError(
      'name_not_permitted',
      'A CA of the chain does not permit a name that the certificate carries.',
    )
  }
}

/** What leaf, intermediate and root must all be. */
function checkAny({ x509, critical, purposes }: Link, at: number): void {
  if (at < x509.validFromDate.getTime()) {
    throw new ChainError('not_yet_valid', 'A certificate of the chain is not valid yet.')
  }
  if (at > x509.validToDate.getTime())
    throw new ChainError('expired', 'A certificate of the chain has expired.')
  checkKey(x509)
  const unknown = critical.find((oid) => !UNDERSTOOD.includes(oid))
  if (unknown)
    throw new ChainError('unknown_critical_extension', `The critical extension ${unknown} is not understood.`)
  // An issuer's extendedKeyUsage limits what lies below it: not in RFC 5280, but what every verifier does.
  if (purposes !== null && !purposes.includes(OID.clientAuth)) {
    throw new ChainError(
      'wrong_usage',
      'The extendedKeyUsage of a certificate does not allow client authentication.',
    )
  }
}

function checkKey({ publicKey }: X509Certificate): void {
  const { namedCurve, modulusLength } = publicKey.asymmetricKeyDetails ?? {}
  const strong =
    (publicKey.asymmetricKeyType === 'ec' && CURVES.includes(namedCurve ?? '')) ||
    (publicKey.asymmetricKeyType === 'rsa' && (modulusLength ?? 0) >= RSA_BITS)
  if (strong) return
  throw new ChainError('weak_key', 'A key of the chain is neither EC P-256 or larger nor RSA 2048 or larger.')
}

function checkSignature({ signature }: Link): void {
  if (SIGNATURES.includes(signature)) return
  throw new ChainError(
    'weak_signature',
    'A certificate of the chain is not signed with ECDSA or RSA and SHA-256 or better.',
  )
}

function allows({ usage }: Link, bit: number, whereAbsent: boolean): boolean {
  return usage === null ? whereAbsent : (usage & bit) !== 0
}
