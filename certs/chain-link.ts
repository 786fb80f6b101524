import type { X509Certificate } from 'node:crypto'
import { BitString } from 'asn1js'
import { BasicConstraints, ExtKeyUsage, type GeneralName, GeneralNames, NameConstraints } from 'pkijs'
import { type Asn1, certificatesOf, extensionOf, OID, readCertificate } from './x509.ts'

/** What a certificate says of itself, as far as path validation asks (RFC 5280 §6.1). All of it read, none of it believed. */
export interface Link {
  readonly x509: X509Certificate
  /** The algorithm its issuer signed it with. OID. */
  readonly signature: string
  /** The numbers of its critical extensions. */
  readonly critical: readonly string[]
  readonly constraints: BasicConstraints | null
  /** The first eight bits of keyUsage, digitalSignature highest; null where it is absent. */
  readonly usage: number | null
  /** extendedKeyUsage. OIDs; null where it is absent. */
  readonly purposes: readonly string[] | null
  readonly names: readonly GeneralName[]
  readonly nameConstraints: NameConstraints | null
}

/** The certificates of a PEM text, first things first. Throws an Error where one of them is malformed anywhere we look. */
export function linksOf(pem: string): readonly Link[] {
  return certificatesOf(pem).map(linkOf)
}

function linkOf(x509: X509Certificate): Link {
  const certificate = readCertificate(x509.raw)
  const extensions = certificate.extensions ?? []
  const read = <T>(oid: string, reader: (schema: Asn1) => T): T | null =>
    extensionOf(certificate, oid, reader)
  return {
    x509,
    signature: certificate.signatureAlgorithm.algorithmId,
    critical: extensions.filter(({ critical }) => critical).map(({ extnID }) => extnID),
    constraints: read(OID.basicConstraints, (schema) => new BasicConstraints({ schema })),
    usage: read(OID.keyUsage, firstBits),
    purposes: read(OID.extendedKeyUsage, (schema) => new ExtKeyUsage({ schema }).keyPurposes),
    names: read(OID.subjectAltName, (schema) => new GeneralNames({ schema }).names) ?? [],
    nameConstraints: read(OID.nameConstraints, (schema) => new NameConstraints({ schema })),
  }
}

function firstBits(schema: Asn1): number {
  if (!(schema instanceof BitString)) throw new Error('keyUsage is a BIT STRING')
  return schema.valueBlock.valueHexView[0] ?? 0
}
