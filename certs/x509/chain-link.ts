import type { X509Certificate } from 'node:crypto'
import { BitString } from 'asn1js'
import { BasicConstraints, ExtKeyUsage, type GeneralName, GeneralNames, NameConstraints } from 'pkijs'
import { type SignatureAlgorithm, signatureAlgorithmOf } from './strength.ts'
import {
  type Asn1Value,
  type ExtensionHolder,
  extensionOf,
  OID,
  pemCertificatesOf,
  readCertificate,
} from './x509.ts'

/**
 * The claims of a certificate, or of a request for one, about itself (RFC 5280 §4.2). All of them are read,
 * none is believed.
 */
export interface CertificateClaims {
  /** The numbers of its critical extensions. */
  readonly critical: readonly string[]
  readonly constraints: BasicConstraints | null
  /** The first eight bits of keyUsage, see {@link KEY_USAGE}; null if it is absent. */
  readonly usage: number | null
  /** extendedKeyUsage. OIDs; null if it is absent. */
  readonly purposes: readonly string[] | null
  readonly names: readonly GeneralName[]
  readonly nameConstraints: NameConstraints | null
}

/** A certificate, parsed as far as path validation needs it (RFC 5280 §6.1). */
export interface ChainCertificate extends CertificateClaims {
  readonly x509: X509Certificate
  /** The algorithm its issuer signed it with; null if it is not accepted. */
  readonly signature: SignatureAlgorithm | null
}

/** Bits of keyUsage, digitalSignature highest (RFC 5280 §4.2.1.3). */
export const KEY_USAGE = {
  digitalSignature: 0x80,
  nonRepudiation: 0x40,
  keyCertSign: 0x04,
  cRLSign: 0x02,
} as const

/**
 * Reads the certificates of a PEM text, in their order. Throws an Error if one of them is malformed in
 * anything that is read.
 */
export function chainCertificatesOf(pem: string): readonly ChainCertificate[] {
  return pemCertificatesOf(pem).map(chainCertificateOf)
}

/** Reads a certificate's claims. Throws an Error if it is malformed anywhere we look. */
export function chainCertificateOf(x509: X509Certificate): ChainCertificate {
  const certificate = readCertificate(x509.raw)
  return { x509, signature: signatureAlgorithmOf(certificate.signatureAlgorithm), ...claimsOf(certificate) }
}

/**
 * Reads the claims of a certificate or a request. Throws an Error if an extension that is read occurs twice
 * or is malformed.
 */
export function claimsOf(holder: ExtensionHolder): CertificateClaims {
  const extensions = holder.extensions ?? []
  const read = <T>(oid: string, reader: (schema: Asn1Value) => T): T | null =>
    extensionOf(holder, oid, reader)
  return {
    critical: extensions.filter(({ critical }) => critical).map(({ extnID }) => extnID),
    constraints: read(OID.basicConstraints, (schema) => new BasicConstraints({ schema })),
    usage: read(OID.keyUsage, firstBits),
    purposes: read(OID.extendedKeyUsage, (schema) => new ExtKeyUsage({ schema }).keyPurposes),
    names: read(OID.subjectAltName, (schema) => new GeneralNames({ schema }).names) ?? [],
    nameConstraints: read(OID.nameConstraints, (schema) => new NameConstraints({ schema })),
  }
}

/** Tells whether keyUsage allows any of those bits; `whereAbsent` if there is no keyUsage. */
export function keyUsageAllows({ usage }: CertificateClaims, bits: number, whereAbsent: boolean): boolean {
  return usage === null ? whereAbsent : (usage & bits) !== 0
}

/**
 * Tells whether a certificate claims to be a CA, or to sign certificates or revocation lists: no client's
 * certificate does.
 */
export function claimsToBeCa(claims: CertificateClaims): boolean {
  return (
    claims.constraints?.cA === true ||
    keyUsageAllows(claims, KEY_USAGE.keyCertSign | KEY_USAGE.cRLSign, false)
  )
}

function firstBits(schema: Asn1Value): number {
  if (!(schema instanceof BitString)) throw new Error('keyUsage is a BIT STRING')
  return schema.valueBlock.valueHexView[0] ?? 0
}
