import { CertificateError } from '../certificate-error.ts'
import { checkTrustAnchor, readChainCertificates } from '../x509/chain.ts'
import type { ChainCertificate } from '../x509/chain-link.ts'
import { thumbprintOf } from '../x509/thumbprint.ts'
import { CERTIFICATE_LIMIT, countCertificates } from '../x509/x509.ts'

/** A CA certificate that the operator trusts for enrollment (docs/protocol.md#cas). */
export interface CaCertificate {
  /** This certificate alone, as OpenSSL writes it. */
  readonly pem: string
  /** Lower-case hex SHA-256 of its DER. */
  readonly digest: string
  /** One line, for people: `O=acme, CN=acme Root CA`. May be empty. */
  readonly subject: string
  /** ms since the epoch. */
  readonly notAfter: number
}

/**
 * Reads the CA certificates of a PEM text, each once: one, or a bundle (a SPIFFE trust domain has two while
 * it rotates). Throws a {@link CertificateError} if there is none, if one cannot be read, or one could never
 * end a good chain (`not_a_ca`, `key_too_weak`, `certificate_expired`, `client_auth_missing`,
 * `unknown_critical_extension`). All of them, or none. One that is not valid yet is taken, so that it can be
 * attached before it is needed.
 */
export function readCaCertificates(caPem: string, at: number): readonly [CaCertificate, ...CaCertificate[]] {
  if (countCertificates(caPem) > CERTIFICATE_LIMIT) {
    const message = `The text holds more than ${CERTIFICATE_LIMIT} certificates.`
    throw new CertificateError('certificate_unreadable', message)
  }
  const read = readChainCertificates(caPem)
  for (const link of read) checkTrustAnchor(link, at)
  const [first, ...rest] = new Map(read.map(describe).map((ca) => [ca.digest, ca])).values()
  if (!first) throw new CertificateError('certificate_unreadable', 'The text holds no PEM certificate.')
  return [first, ...rest]
}

/** Reads the same of certificates that were checked when they came: one that has ended since, too. */
export const knownCaCertificates = (caPem: string): readonly CaCertificate[] =>
  readChainCertificates(caPem).map(describe)

function describe({ x509 }: ChainCertificate): CaCertificate {
  return {
    pem: x509.toString(),
    digest: thumbprintOf(x509.raw),
    // One attribute a line; OpenSSL has escaped the line ends inside them.
    subject: x509.subject.replaceAll('\n', ', '),
    notAfter: x509.validToDate.getTime(),
  }
}
