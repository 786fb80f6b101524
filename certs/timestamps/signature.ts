import { hash, verify, X509Certificate } from 'node:crypto'
import { type ChainCertificate, chainCertificateOf, KEY_USAGE } from '../x509/chain-link.ts'
import { ASN1_TAG, type Asn1Element, octetsOf, oidOf, partsOf } from '../x509/elements.ts'
import {
  isStrong,
  SIGNATURE_ALGORITHMS,
  STRONG_DIGESTS,
  STRONG_KEY,
  type StrongDigest,
} from '../x509/strength.ts'
import { OID, readCertificate, subjectAttributeOf } from '../x509/x509.ts'
import {
  issuerAndSerialOf,
  type SignerInfo,
  StampError,
  type TimeStampToken,
  TST_INFO,
  withStampErrors,
} from './stamp.ts'

/** A certificate that signs time stamps. */
export interface StampSigner {
  readonly link: ChainCertificate
  /** The common name of its subject, fit for a terminal; the certificate's SHA-256 if it has none. */
  readonly name: string
}

/** The signer of a time stamp, and the other certificates that came with it. DER. */
export interface VerifiedSigner {
  readonly signer: StampSigner
  readonly others: readonly Uint8Array[]
}

const RSA_ENCRYPTION = '1.2.840.113549.1.1.1'
const CONTENT_TYPE = '1.2.840.113549.1.9.3'
const MESSAGE_DIGEST = '1.2.840.113549.1.9.4'
/** ESSCertID by SHA-1 (RFC 2634), and by a digest that it names (RFC 5816). */
const SIGNING_CERTIFICATE = '1.2.840.113549.1.9.16.2.12'
const SIGNING_CERTIFICATE_V2 = '1.2.840.113549.1.9.16.2.47'
/** The key usages a certificate for time stamps may have. */
const SIGNS_ONLY = KEY_USAGE.digitalSignature | KEY_USAGE.nonRepudiation
/** The most searched for a chain. */
const MAX_STAMP_CERTIFICATES = 9

/**
 * Verifies a time stamp by itself: the certificate that it names and brings is one for time stamps alone (RFC
 * 3161, section 2.3), was valid then, has signed it (RFC 5652, section 5.4), and is the one that it binds
 * itself to (RFC 5816). Throws a {@link StampError}. `signerIn`: reads a certificate, and may remember it.
 * Does NOT ask who has issued it: `judge.ts` does.
 */
export function verifyStamp(stamp: TimeStampToken, signerIn = stampSignerOf): VerifiedSigner {
  return withStampErrors(() => {
    const { certificates, signer: said } = stamp
    if (certificates.length > MAX_STAMP_CERTIFICATES)
      throw new StampError(`brings more than ${MAX_STAMP_CERTIFICATES} certificates`)
    const own = certificates.find((der) =>
      issuerAndSerialOf(der).every((name, at) => isSame(name, said.named[at])),
    )
    if (!own) throw new StampError('does not bring the certificate that it names')
    const signer = signerIn(own)
    checkAttributes(stamp, own)
    checkSignature(said, signer.link.x509)
    checkPurpose(signer.link)
    const { validFromDate: from, validToDate: until } = signer.link.x509
    if (stamp.at < from.getTime() || stamp.at > until.getTime())
      throw new StampError('is signed by a certificate that was not valid then')
    return { signer, others: certificates.filter((der) => der !== own) }
  })
}

/** Reads the certificate of a signer. Throws an Error if it is malformed anywhere we look. */
export function stampSignerOf(der: Uint8Array): StampSigner {
  const link = chainCertificateOf(new X509Certificate(der))
  const said = subjectAttributeOf(readCertificate(der), OID.commonName) ?? ''
  const name = Array.from(said.replaceAll(UNFIT, ' ').trim()).slice(0, MAX_SIGNER_NAME_LENGTH).join('')
  return { link, name: name === '' ? `the certificate ${hash('sha256', der)}` : name }
}

/** Characters that a terminal obeys or hides. */
const UNFIT = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu
/** The longest common name (RFC 5280, appendix A). */
const MAX_SIGNER_NAME_LENGTH = 64

const isSame = (one: Uint8Array, other: Uint8Array | undefined): boolean =>
  other !== undefined && Buffer.compare(one, other) === 0

function checkAttributes({ content, signer }: TimeStampToken, certificate: Uint8Array): void {
  const digest = singleAttributeValue(signer, MESSAGE_DIGEST)
  if (
    oidOf(singleAttributeValue(signer, CONTENT_TYPE)) !== TST_INFO ||
    !isSame(hash(digestOf(signer), content, 'buffer'), digest && octetsOf(digest))
  )
    throw new StampError('is not what was signed')
  const [first, second] = [
    singleAttributeValue(signer, SIGNING_CERTIFICATE),
    singleAttributeValue(signer, SIGNING_CERTIFICATE_V2),
  ]
  const isBound =
    (first ?? second) !== undefined &&
    (!first || isBoundTo(first, certificate, 'sha1')) &&
    (!second || isBoundTo(second, certificate, 'sha256'))
  if (!isBound) throw new StampError('does not bind the certificate of its signer')
}

/** The one value of the one attribute of a type; undefined if it is not there. */
function singleAttributeValue({ attributes }: SignerInfo, oid: string): Asn1Element | undefined {
  const [one, another] = attributes.filter(({ type }) => type === oid)
  if (another || (one && one.values.length !== 1)) throw new Error(`the attribute ${oid} is there twice`)
  return one?.values[0]
}

/** True if the first certificate of a SigningCertificate, of either version, is this one. */
function isBoundTo(attribute: Asn1Element, certificate: Uint8Array, usual: 'sha1' | 'sha256'): boolean {
  const [list] = partsOf(attribute, ASN1_TAG.sequence)
  const [head, next] = partsOf(partsOf(list, ASN1_TAG.sequence)[0], ASN1_TAG.sequence)
  // The second version may name a digest first.
  const names = usual !== 'sha1' && head?.tag === ASN1_TAG.sequence
  const digest = names ? STRONG_DIGESTS.get(oidOf(partsOf(head, ASN1_TAG.sequence)[0])) : usual
  return digest !== undefined && isSame(hash(digest, certificate, 'buffer'), octetsOf(names ? next : head))
}

function digestOf({ digest: oid }: SignerInfo): StrongDigest {
  const digest = STRONG_DIGESTS.get(oid)
  if (!digest) throw new StampError('is signed over another digest than SHA-256, SHA-384 or SHA-512')
  return digest
}

function checkSignature(signer: SignerInfo, { publicKey }: X509Certificate): void {
  const digest = digestOf(signer)
  const algorithm =
    signer.algorithm === RSA_ENCRYPTION
      ? { keyTypes: ['rsa'], digest }
      : SIGNATURE_ALGORITHMS.get(signer.algorithm)
  if (algorithm?.digest !== digest || !algorithm.keyTypes.includes(publicKey.asymmetricKeyType ?? ''))
    throw new StampError('is signed by another algorithm than ECDSA or RSA (PKCS #1 v1.5)')
  if (!isStrong(publicKey)) throw new StampError(`is signed by a key that is not ${STRONG_KEY}`)
  if (!verify(digest, signer.signed, publicKey, signer.signature))
    throw new StampError('has a signature that is not by its certificate')
}

function checkPurpose({ purposes, critical, usage, constraints }: ChainCertificate): void {
  const isForStamps =
    purposes?.length === 1 &&
    purposes[0] === OID.timeStamping &&
    critical.includes(OID.extendedKeyUsage) &&
    (usage === null || ((usage & SIGNS_ONLY) !== 0 && (usage & ~SIGNS_ONLY) === 0)) &&
    constraints?.cA !== true
  if (!isForStamps) throw new StampError('is signed by a certificate that is not for time stamps alone')
}
