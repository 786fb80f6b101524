import { hash, type KeyObject, randomBytes, sign, X509Certificate } from 'node:crypto'
import {
  Set as Asn1Set,
  BitString,
  Integer,
  ObjectIdentifier,
  OctetString,
  Sequence,
  Utf8String,
} from 'asn1js'
import {
  AlgorithmIdentifier,
  AuthorityKeyIdentifier,
  BasicConstraints,
  Certificate,
  Extension,
  ExtKeyUsage,
  type GeneralName,
  GeneralNames,
  GeneralSubtree,
  NameConstraints,
  PublicKeyInfo,
  RelativeDistinguishedNames,
  Time,
} from 'pkijs'
import { decodeAsn1, extensionOf, OID } from '../x509/x509.ts'

/** An issuer: a CA certificate and its EC private key. */
export interface CertificateSigner {
  readonly certificate: Certificate
  readonly key: KeyObject
}

export interface CertificateTemplate {
  /** Left out of the subject if it is too long for X.520: see {@link COMMON_NAME_LIMIT}. */
  readonly commonName: string
  readonly organisation: string
  readonly publicKey: KeyObject
  /** ms since the epoch; the certificate holds whole seconds. */
  readonly notBefore: number
  readonly notAfter: number
  /** The extensions besides subjectKeyIdentifier and authorityKeyIdentifier, which every certificate gets. */
  readonly extensions: readonly Extension[]
}

/** The time that a certificate is dated back, for clocks that run behind ours. ms. */
export const BACK_DATED_MS = 60_000

/**
 * The longest common name (X.520 ub-common-name). Characters. A longer name is left out, for a cut one would
 * be somebody else's; the SAN carries the identity.
 */
export const COMMON_NAME_LIMIT = 64

/** The first moment that a UTCTime cannot express (RFC 5280 §4.1.2.5). */
const YEAR_2050 = Date.UTC(2050, 0)

/**
 * Makes and signs one certificate (RFC 5280 §4.1, ECDSA with SHA-256). OpenSSL parses it before it is handed
 * out. With a `selfKey` that key signs, and the certificate is its own issuer.
 */
export function buildCertificate(
  plan: CertificateTemplate,
  signer: CertificateSigner | { readonly selfKey: KeyObject },
): X509Certificate {
  const certificate = new Certificate()
  const spki = plan.publicKey.export({ type: 'spki', format: 'der' })
  const issuer = 'selfKey' in signer ? certificate : signer.certificate
  certificate.version = 2
  certificate.serialNumber = Integer.fromBigInt(BigInt(`0x${randomBytes(16).toString('hex')}`))
  certificate.subject = nameOf(plan)
  certificate.issuer = issuer.subject
  certificate.notBefore = timeOf(plan.notBefore)
  certificate.notAfter = timeOf(plan.notAfter)
  certificate.subjectPublicKeyInfo = new PublicKeyInfo({ schema: decodeAsn1(spki) })
  const keyId = keyIdOf(certificate)
  const issuerKeyId = 'selfKey' in signer ? keyId : (ownKeyIdOf(issuer) ?? keyIdOf(issuer))
  certificate.extensions = [
    ...plan.extensions,
    extension(OID.subjectKeyIdentifier, new OctetString({ valueHex: keyId })),
    extension(
      OID.authorityKeyIdentifier,
      new AuthorityKeyIdentifier({ keyIdentifier: new OctetString({ valueHex: issuerKeyId }) }).toSchema(),
    ),
  ]
  return signCertificate(certificate, 'selfKey' in signer ? signer.selfKey : signer.key)
}

function signCertificate(certificate: Certificate, key: KeyObject): X509Certificate {
  const algorithm = new AlgorithmIdentifier({ algorithmId: OID.ecdsaWithSha256 })
  certificate.signature = algorithm
  certificate.signatureAlgorithm = algorithm
  certificate.tbsView = new Uint8Array(certificate.encodeTBS().toBER())
  const signature = sign('sha256', certificate.tbsView, key)
  certificate.signatureValue = new BitString({ valueHex: Uint8Array.from(signature) })
  return new X509Certificate(Buffer.from(certificate.toSchema().toBER()))
}

function nameOf({ organisation, commonName }: CertificateTemplate): RelativeDistinguishedNames {
  const parts = [attribute(OID.organisation, organisation)]
  const named = commonName.length > 0 && Array.from(commonName).length <= COMMON_NAME_LIMIT
  if (named) parts.push(attribute(OID.commonName, commonName))
  // Encoded here and read back: from a list pkijs would make one RDN of two values, which no name comparison
  // expects.
  const der = new Sequence({ value: parts }).toBER(false)
  return new RelativeDistinguishedNames({ schema: decodeAsn1(new Uint8Array(der)) })
}

function attribute(type: string, value: string): Asn1Set {
  return new Asn1Set({
    value: [new Sequence({ value: [new ObjectIdentifier({ value: type }), new Utf8String({ value })] })],
  })
}

function timeOf(at: number): Time {
  const seconds = Math.floor(at / 1000) * 1000
  return new Time({ type: seconds < YEAR_2050 ? 0 : 1, value: new Date(seconds) })
}

/**
 * Returns the key identifier (RFC 7093 §2 method 1): the first 160 bits of the SHA-256 of the public key's
 * bits.
 */
function keyIdOf(certificate: Certificate): Uint8Array<ArrayBuffer> {
  const bits = certificate.subjectPublicKeyInfo.subjectPublicKey.valueBlock.valueHexView
  return Uint8Array.from(hash('sha256', bits, 'buffer').subarray(0, 20))
}

// An issuer made elsewhere may have computed its identifier otherwise; ours must repeat it.
function ownKeyIdOf(issuer: Certificate): Uint8Array<ArrayBuffer> | null {
  return extensionOf(issuer, OID.subjectKeyIdentifier, (value) => {
    if (!(value instanceof OctetString)) throw new Error('a key identifier is an OCTET STRING')
    return Uint8Array.from(value.valueBlock.valueHexView)
  })
}

interface Encodable {
  toBER(sizeOnly?: boolean): ArrayBuffer
}

function extension(extnID: string, value: Encodable, critical = false): Extension {
  return new Extension({ extnID, critical, extnValue: value.toBER(false) })
}

/** Makes the basicConstraints of a CA that may have `pathLength` further CAs below it (RFC 5280 §4.2.1.9). */
export const authorityConstraints = (pathLength: number): Extension =>
  extension(
    OID.basicConstraints,
    new BasicConstraints({ cA: true, pathLenConstraint: pathLength }).toSchema(),
    true,
  )

/** Makes the basicConstraints of a certificate that signs no other. */
export const leafConstraints = (): Extension =>
  extension(OID.basicConstraints, new BasicConstraints({ cA: false }).toSchema(), true)

/** Makes the keyUsage with keyCertSign and cRLSign: bits 5 and 6 (RFC 5280 §4.2.1.3). */
export const certSignKeyUsage = (): Extension => keyUsage(0x06, 1)

/** Makes the keyUsage with digitalSignature: bit 0. */
export const digitalSignatureKeyUsage = (): Extension => keyUsage(0x80, 7)

function keyUsage(bits: number, unusedBits: number): Extension {
  return extension(OID.keyUsage, new BitString({ valueHex: Uint8Array.of(bits), unusedBits }), true)
}

export const extendedKeyUsage = (purpose: string): Extension =>
  extension(OID.extendedKeyUsage, new ExtKeyUsage({ keyPurposes: [purpose] }).toSchema())

export const alternativeNames = (names: GeneralName[]): Extension =>
  extension(OID.subjectAltName, new GeneralNames({ names }).toSchema())

/**
 * Makes the nameConstraints of a CA: no certificate below may carry a name of that kind outside `base`
 * (RFC 5280 §4.2.1.10).
 */
export function permittedNameConstraints(base: GeneralName): Extension {
  const permittedSubtrees = [new GeneralSubtree({ base, minimum: 0 })]
  return extension(OID.nameConstraints, new NameConstraints({ permittedSubtrees }).toSchema(), true)
}
