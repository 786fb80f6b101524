import type { X509Certificate } from 'node:crypto'
import { CertificateError, type CertificateReason } from '../certificate-error.ts'
import {
  type ChainCertificate,
  chainCertificateOf,
  chainCertificatesOf,
  claimsToBeCa,
  KEY_USAGE,
  keyUsageAllows,
} from './chain-link.ts'
import { permitsNames } from './name-constraints.ts'
import { isStrong, STRONG_KEY, STRONG_SIGNATURE } from './strength.ts'
import { countCertificates, OID, pemCertificatesOf } from './x509.ts'

export interface VerifyChainOptions {
  /** The leaf first; may be followed by intermediates. */
  readonly leafPem: string
  /** Further intermediates, in any order. May be empty. */
  readonly intermediatesPem: string
  /** The CA certificates that the operator trusts, in one text or several. They need not be self-signed. */
  readonly rootsPem: string | readonly string[]
  /** ms since the epoch. */
  readonly at: number
  /** Allowed by every extendedKeyUsage in the path, and the leaf's use. Default: to authenticate a client. */
  readonly purpose?: ChainPurpose
}

type ChainPurpose = 'client' | 'time_stamps'

/**
 * For each purpose: the extendedKeyUsage, the bits of keyUsage of which a leaf needs one, and the refusal
 * without the first.
 */
const PURPOSES = {
  client: {
    extended: OID.clientAuth,
    usage: KEY_USAGE.digitalSignature,
    reason: 'client_auth_missing',
    message: 'The extendedKeyUsage of a certificate does not allow client authentication.',
  },
  time_stamps: {
    extended: OID.timeStamping,
    usage: KEY_USAGE.digitalSignature | KEY_USAGE.nonRepudiation,
    reason: 'chain_invalid',
    message: 'The extendedKeyUsage of a certificate does not allow time stamps.',
  },
} as const satisfies Record<ChainPurpose, object>

/** A path of certificates: the leaf first, each followed by its issuer. The last one is trusted. */
export type CertificationPath = readonly [ChainCertificate, ...ChainCertificate[]]

/**
 * The longest path: leaf, intermediate, root, as docs/threats.md#m-07 allows. A longer chain is met by
 * trusting its second CA.
 */
const PATH_LIMIT = 3
/**
 * The most intermediates that may be given: more is no honest chain, and every one of them costs signature
 * checks.
 */
const CANDIDATE_LIMIT = 8
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

/**
 * Verifies that a leaf chains to a trusted CA at that moment and fits its purpose (RFC 5280 §6,
 * docs/threats.md#m-07). Resolves with the first path that passes; else throws a {@link CertificateError}
 * with the first path's fault. Does NOT look at revocation, nor at the names in the leaf: `uriNamesOf` and
 * the pin do.
 */
export async function verifyChain(chain: VerifyChainOptions): Promise<CertificationPath> {
  try {
    return checkChain(chain)
  } catch (error) {
    if (error instanceof CertificateError) throw error
    // Not every malformed field is met while reading: a public key, for one, is decoded when it is first
    // used.
    throw unreadable(error)
  }
}

/**
 * Finds every trusted CA that a leaf chains to at that moment, as {@link verifyChain} finds the first. Throws
 * as that does if there is none.
 */
export async function anchorsOf(chain: VerifyChainOptions): Promise<readonly ChainCertificate[]> {
  await verifyChain(chain)
  const { at, purpose = 'client' } = chain
  const passing = [...candidatesOf(chain)].filter((path) => faultOf(path, at, purpose) === null)
  return passing.flatMap((path) => path.slice(-1))
}

function checkChain(chain: VerifyChainOptions): CertificationPath {
  const { at, purpose = 'client' } = chain
  let fault: CertificateError | null = null
  for (const path of candidatesOf(chain)) {
    const found = faultOf(path, at, purpose)
    if (found === null) return path
    fault ??= found
  }
  throw fault ?? new CertificateError('chain_invalid', 'The certificate does not chain to a trusted CA.')
}

/** Reads a chain, and gives every path to a trusted CA. Throws if the leaf itself is at fault. */
function candidatesOf({
  leafPem,
  intermediatesPem,
  rootsPem,
  at,
  purpose = 'client',
}: VerifyChainOptions): Iterable<CertificationPath> {
  const [leaf, ...sent] = readChain(leafPem)
  if (!leaf) throw new CertificateError('certificate_unreadable', 'The text holds no PEM certificate.')
  refuseMany(sent.length + countCertificates(intermediatesPem))
  const intermediates = [...sent, ...readChainCertificates(intermediatesPem)]
  checkLeaf(leaf, at, purpose)
  return pathsFrom([leaf], intermediates, rootsOf(rootsPem, [leaf, ...intermediates]))
}

/**
 * Checks that a CA certificate can be the last of a chain, now or, if it is not valid yet, once it is: a CA
 * that may sign certificates, strong, not ended, and nothing in it that every chain would fail on. Throws a
 * {@link CertificateError}. An absent keyUsage allows everything (RFC 5280 §4.2.1.3). Its own signature is
 * NOT looked at: trust comes from the operator.
 */
export function checkTrustAnchor(anchor: ChainCertificate, at: number): void {
  const moment = Math.max(at, anchor.x509.validFromDate.getTime())
  try {
    checkIssuer(anchor, [], { at: moment, purpose: 'client', notACa: 'not_a_ca' })
  } catch (error) {
    if (error instanceof CertificateError) throw error
    throw unreadable(error)
  }
}

/**
 * Reads the certificates of a leaf and its intermediates as {@link readChainCertificates} does. Throws a
 * {@link CertificateError} `chain_invalid`, and reads none, if there are more than eight intermediates.
 */
export function readChain(pem: string): readonly ChainCertificate[] {
  refuseMany(countCertificates(pem) - 1)
  return readChainCertificates(pem)
}

function refuseMany(intermediates: number): void {
  if (intermediates <= CANDIDATE_LIMIT) return
  throw new CertificateError(
    'chain_invalid',
    `More than ${CANDIDATE_LIMIT} intermediate certificates were given.`,
  )
}

/**
 * Reads the trusted certificates that may have issued one of these. A bundle may be long; to read one takes
 * ms.
 */
function rootsOf(
  pems: string | readonly string[],
  below: readonly ChainCertificate[],
): readonly ChainCertificate[] {
  return [pems]
    .flat()
    .flatMap(pemCertificatesOf)
    .filter((root) => below.some(({ x509 }) => x509.checkIssued(root)))
    .map(chainCertificateOf)
}

/**
 * Reads the certificates of a PEM text as `chainCertificatesOf` does. Throws a {@link CertificateError}
 * `certificate_unreadable`.
 */
export function readChainCertificates(pem: string): readonly ChainCertificate[] {
  try {
    return chainCertificatesOf(pem)
  } catch (cause) {
    throw unreadable(cause)
  }
}

function unreadable(cause: unknown): CertificateError {
  return new CertificateError('certificate_unreadable', 'A certificate cannot be read.', cause)
}

/**
 * Finds every path to a root by name and signature alone; one step past the limit, to tell too long from
 * unknown.
 */
function* pathsFrom(
  path: CertificationPath,
  intermediates: readonly ChainCertificate[],
  roots: readonly ChainCertificate[],
): Generator<CertificationPath> {
  const child = path.at(-1) ?? path[0]
  for (const root of roots) if (isIssuerOf(root, child)) yield [...path, root]
  if (path.length >= PATH_LIMIT) return
  for (const next of intermediates) {
    if (!path.includes(next) && isIssuerOf(next, child))
      yield* pathsFrom([...path, next], intermediates, roots)
  }
}

function isIssuerOf(issuer: ChainCertificate, child: ChainCertificate): boolean {
  return child.x509.checkIssued(issuer.x509) && child.x509.verify(issuer.x509.publicKey)
}

function faultOf(path: CertificationPath, at: number, purpose: ChainPurpose): CertificateError | null {
  try {
    checkPath(path, at, purpose)
    return null
  } catch (error) {
    if (error instanceof CertificateError) return error
    throw error
  }
}

function checkPath(path: CertificationPath, at: number, purpose: ChainPurpose): void {
  if (path.length > PATH_LIMIT) {
    throw new CertificateError('chain_invalid', 'The chain is longer than leaf, intermediate, root.')
  }
  for (const [index, link] of path.entries()) {
    // The root's own signature proves nothing; every certificate below it depends on its signature.
    if (index < path.length - 1) checkSignature(link)
    if (index > 0) checkIssuer(link, path.slice(0, index), { at, purpose, notACa: 'chain_invalid' })
  }
}

function checkLeaf(leaf: ChainCertificate, at: number, purpose: ChainPurpose): void {
  checkAny(leaf, at, purpose)
  if (claimsToBeCa(leaf)) {
    throw new CertificateError('is_a_ca', 'This is a CA certificate, not a client certificate.')
  }
  if (!keyUsageAllows(leaf, PURPOSES[purpose].usage, true)) {
    throw new CertificateError(
      'digital_signature_missing',
      'The keyUsage of the certificate does not allow digital signatures.',
    )
  }
}

interface IssuerRequirements {
  readonly at: number
  readonly purpose: ChainPurpose
  /** The reason if the issuer is no CA. */
  readonly notACa: CertificateReason
}

function checkIssuer(
  issuer: ChainCertificate,
  below: readonly ChainCertificate[],
  { at, purpose, notACa }: IssuerRequirements,
): void {
  checkAny(issuer, at, purpose)
  const { constraints } = issuer
  const which = notACa === 'not_a_ca' ? 'A certificate of the text' : 'An issuer in the chain'
  if (constraints?.cA !== true) throw new CertificateError(notACa, `${which} is not a CA certificate.`)
  if (!keyUsageAllows(issuer, KEY_USAGE.keyCertSign, true))
    throw new CertificateError(notACa, `${which} may not sign others: its keyUsage lacks keyCertSign.`)
  const limit = constraints.pathLenConstraint
  if (limit !== undefined && !(typeof limit === 'number' && below.length - 1 <= limit)) {
    throw new CertificateError('chain_invalid', 'A CA of the chain allows fewer CAs below it.')
  }
  if (!permitsNames(issuer, below)) {
    throw new CertificateError(
      'chain_invalid',
      'A CA of the chain does not permit a name that the certificate carries.',
    )
  }
}

const isoOf = (at: number): string => new Date(at).toISOString()

/** Checks the demands on leaf, intermediate and root alike: dates, key, critical extensions, purposes. */
function checkAny({ x509, critical, purposes }: ChainCertificate, at: number, purpose: ChainPurpose): void {
  const { validFromDate: from, validToDate: to } = x509
  if (at < from.getTime()) {
    const why = `A certificate of the chain is not valid before ${from.toISOString()}, and it is ${isoOf(at)} here.`
    throw new CertificateError('certificate_not_yet_valid', why)
  }
  if (at > to.getTime()) {
    const why = `A certificate of the chain has expired at ${to.toISOString()}, and it is ${isoOf(at)} here.`
    throw new CertificateError('certificate_expired', why)
  }
  checkKey(x509)
  const unknown = critical.find((oid) => !UNDERSTOOD.includes(oid))
  if (unknown)
    throw new CertificateError(
      'unknown_critical_extension',
      `The critical extension ${unknown} is not supported.`,
    )
  // An issuer's extendedKeyUsage limits the certificates below it: not in RFC 5280, but every verifier does
  // so.
  const { extended, reason, message } = PURPOSES[purpose]
  if (purposes !== null && !purposes.includes(extended)) throw new CertificateError(reason, message)
}

function checkKey({ publicKey }: X509Certificate): void {
  if (!isStrong(publicKey))
    throw new CertificateError('key_too_weak', `A key of the chain is not ${STRONG_KEY}.`)
}

function checkSignature({ signature }: ChainCertificate): void {
  if (signature !== null) return
  throw new CertificateError(
    'signature_too_weak',
    `A certificate of the chain is not signed with ${STRONG_SIGNATURE}.`,
  )
}
