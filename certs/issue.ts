import type { X509Certificate } from 'node:crypto'
import { type Extension, GeneralName } from 'pkijs'
import { type Authority, newKeyPair } from './authority.ts'
import {
  alternativeNames,
  BACK_DATED_MS,
  buildCertificate,
  extendedKeyUsage,
  leafConstraints,
  signsHandshakes,
} from './builder.ts'
import { serverNames } from './server-names.ts'
import { parseSpiffeId } from './spiffe-id.ts'
import { thumbprintOf } from './thumbprint.ts'
import { OID } from './x509.ts'

/** A fresh certificate with its key, which is kept nowhere else. */
export interface Issued {
  readonly certPem: string
  /** The leaf, then the intermediate: what a TLS endpoint sends. */
  readonly chainPem: string
  /** PKCS#8. */
  readonly privateKeyPem: string
  /** Lower-case hex SHA-256 of the leaf's DER (RFC 8705 §3.1). */
  readonly thumbprint: string
  /** Upper-case hex, as OpenSSL prints it. */
  readonly serial: string
  /** ms since the epoch, whole seconds. */
  readonly notBefore: number
  readonly notAfter: number
}

/** From when, and for how long. The end is cut to the intermediate's own. */
export interface Term {
  /** ms since the epoch. */
  readonly at: number
  readonly days: number
}

const DAY_MS = 86_400_000
const URI_NAME = 6

/**
 * A client certificate that speaks for one SPIFFE id (specification §5.1): EC P-256, clientAuth, one URI SAN.
 * A common name longer than X.520's 64 characters is left out. Throws an Error where the id is malformed or of
 * another organisation or trust domain than the authority's, or the intermediate has ended. Records nothing.
 */
export async function issueClientCertificate(
  authority: Authority,
  subject: { readonly commonName: string; readonly spiffeId: string },
  term: Term,
): Promise<Issued> {
  const { org, trustDomain } = parseSpiffeId(subject.spiffeId)
  if (org !== authority.organisation) {
    throw new Error(`this CA issues for the organisation ${authority.organisation}, not for ${org}`)
  }
  if (authority.trustDomain !== null && trustDomain !== authority.trustDomain) {
    throw new Error(`this CA issues for the trust domain ${authority.trustDomain}, not for ${trustDomain}`)
  }
  if (/\p{Cc}/u.test(subject.commonName)) throw new Error('the common name holds a control character')
  const name = new GeneralName({ type: URI_NAME, value: subject.spiffeId })
  return issue(authority, subject.commonName, term, [
    extendedKeyUsage(OID.clientAuth),
    alternativeNames([name]),
  ])
}

/**
 * The certificate of this service's own TLS endpoint: serverAuth, one SAN for each host name or IP address.
 * Throws an Error where there is none or one cannot stand in a certificate, or the intermediate has ended.
 */
export async function issueServerCertificate(
  authority: Authority,
  hostnames: readonly string[],
  term: Term,
): Promise<Issued> {
  const names = serverNames(hostnames)
  return issue(authority, names[0]?.text ?? '', term, [
    extendedKeyUsage(OID.serverAuth),
    alternativeNames(names.map(({ name }) => name)),
  ])
}

async function issue(
  authority: Authority,
  commonName: string,
  { at, days }: Term,
  extensions: readonly Extension[],
): Promise<Issued> {
  if (!(days > 0 && Number.isFinite(days)))
    throw new Error(`a certificate lives for more than 0 days, got ${days}`)
  if (at >= authority.notAfter) {
    throw new Error(
      `the issuing CA expired on ${new Date(authority.notAfter).toISOString()}: make or attach a new one`,
    )
  }
  const { publicKey, pem } = await newKeyPair()
  const leaf = buildCertificate(
    {
      commonName,
      organisation: authority.organisation,
      publicKey,
      notBefore: at - BACK_DATED_MS,
      notAfter: Math.min(at + days * DAY_MS, authority.notAfter),
      extensions: [leafConstraints(), signsHandshakes(), ...extensions],
    },
    authority.signer,
  )
  return describe(leaf, authority, pem)
}

function describe(leaf: X509Certificate, authority: Authority, privateKeyPem: string): Issued {
  const certPem = leaf.toString()
  return {
    certPem,
    chainPem: certPem + authority.intermediatePem,
    privateKeyPem,
    thumbprint: thumbprintOf(leaf.raw),
    serial: leaf.serialNumber,
    notBefore: leaf.validFromDate.getTime(),
    notAfter: leaf.validToDate.getTime(),
  }
}
