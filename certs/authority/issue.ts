import type { KeyObject, X509Certificate } from 'node:crypto'
import { type Extension, GeneralName } from 'pkijs'
import { parseSpiffeId } from '../enrollment/spiffe-id.ts'
import { OID, thumbprintOf } from '../x509/x509.ts'
import { type IssuingAuthority, newKeyPair } from './authority.ts'
import {
  alternativeNames,
  BACK_DATED_MS,
  buildCertificate,
  digitalSignatureKeyUsage,
  extendedKeyUsage,
  leafConstraints,
} from './builder.ts'
import { serverNames } from './server-names.ts'

/** A fresh certificate. */
export interface IssuedCertificate {
  readonly certPem: string
  /** The leaf, then the intermediate, as a TLS endpoint sends them. */
  readonly chainPem: string
  /** Lower-case hex SHA-256 of the leaf's DER (RFC 8705 §3.1). */
  readonly thumbprint: string
  /** The digest of the CA that has issued it. */
  readonly issuer: string
  /** Upper-case hex, as OpenSSL prints it. */
  readonly serial: string
  /** ms since the epoch, whole seconds. */
  readonly notBefore: number
  readonly notAfter: number
}

/** A fresh certificate with its key, which is kept nowhere else. */
export interface IssuedCredential extends IssuedCertificate {
  /** PKCS#8. */
  readonly privateKeyPem: string
}

/** The subject of a client certificate. */
export interface ClientSubject {
  readonly commonName: string
  readonly spiffeId: string
}

/** The term of a certificate: its start and its length. The end is cut to the intermediate's own. */
export interface ValidityPeriod {
  /** ms since the epoch. */
  readonly at: number
  readonly days: number
}

const DAY_MS = 86_400_000
const URI_NAME = 6

/**
 * Issues a client certificate for a fresh EC P-256 key. Throws as {@link certifyClient} does. Records
 * nothing.
 */
export async function issueClientCertificate(
  authority: IssuingAuthority,
  subject: ClientSubject,
  term: ValidityPeriod,
): Promise<IssuedCredential> {
  const { publicKey, pem } = await newKeyPair()
  return { ...certifyClient(authority, publicKey, subject, term), privateKeyPem: pem }
}

/**
 * Issues a client certificate for that key, which speaks for one SPIFFE id (specification §5.1): clientAuth,
 * one URI SAN. A common name longer than X.520's 64 characters is left out. Throws an Error if the id is
 * malformed or of another organisation or trust domain than the authority's, or the intermediate has ended.
 * Records nothing. Does NOT check the strength of the key, nor that the subject holds its private half:
 * `certs/enrollment/csr.ts` does.
 */
export function certifyClient(
  authority: IssuingAuthority,
  publicKey: KeyObject,
  subject: ClientSubject,
  term: ValidityPeriod,
): IssuedCertificate {
  const { org, trustDomain } = parseSpiffeId(subject.spiffeId)
  if (org !== authority.organisation) {
    throw new Error(`this CA issues for the organisation ${authority.organisation}, not for ${org}`)
  }
  if (authority.trustDomain !== null && trustDomain !== authority.trustDomain) {
    throw new Error(`this CA issues for the trust domain ${authority.trustDomain}, not for ${trustDomain}`)
  }
  if (/\p{Cc}/u.test(subject.commonName)) throw new Error('the common name holds a control character')
  const name = new GeneralName({ type: URI_NAME, value: subject.spiffeId })
  return certify(authority, publicKey, subject.commonName, term, [
    extendedKeyUsage(OID.clientAuth),
    alternativeNames([name]),
  ])
}

/**
 * Issues the certificate of this service's own TLS endpoint: serverAuth, one SAN for each host name or IP
 * address. Throws an Error if there is none or one cannot stand in a certificate, or the intermediate has
 * ended.
 */
export async function issueServerCertificate(
  authority: IssuingAuthority,
  hostnames: readonly string[],
  term: ValidityPeriod,
): Promise<IssuedCredential> {
  const names = serverNames(hostnames)
  const { publicKey, pem } = await newKeyPair()
  const certified = certify(authority, publicKey, names[0]?.text ?? '', term, [
    extendedKeyUsage(OID.serverAuth),
    alternativeNames(names.map(({ name }) => name)),
  ])
  return {
    ...certified,
    chainPem: certified.certPem + authority.serverChainPem,
    privateKeyPem: pem,
  }
}

function certify(
  authority: IssuingAuthority,
  publicKey: KeyObject,
  commonName: string,
  { at, days }: ValidityPeriod,
  extensions: readonly Extension[],
): IssuedCertificate {
  if (!(days > 0 && Number.isFinite(days)))
    throw new Error(`a certificate must be valid for more than 0 days, got ${days}`)
  if (at >= authority.notAfter) {
    throw new Error(
      `the issuing CA expired on ${new Date(authority.notAfter).toISOString()}: make or attach a new one`,
    )
  }
  const leaf = buildCertificate(
    {
      commonName,
      organisation: authority.organisation,
      publicKey,
      notBefore: at - BACK_DATED_MS,
      notAfter: Math.min(at + days * DAY_MS, authority.notAfter),
      extensions: [leafConstraints(), digitalSignatureKeyUsage(), ...extensions],
    },
    authority.signer,
  )
  return describe(leaf, authority)
}

function describe(leaf: X509Certificate, authority: IssuingAuthority): IssuedCertificate {
  const certPem = leaf.toString()
  return {
    certPem,
    chainPem: certPem + authority.intermediatePem,
    thumbprint: thumbprintOf(leaf.raw),
    issuer: authority.digest,
    serial: leaf.serialNumber,
    notBefore: leaf.validFromDate.getTime(),
    notAfter: leaf.validToDate.getTime(),
  }
}
