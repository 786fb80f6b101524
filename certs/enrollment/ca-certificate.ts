import { X509Certificate } from 'node:crypto'
import { CertificateError, type CertificateReason } from '../certificate-error.ts'
import { checkTrustAnchor } from '../x509/chain.ts'
import { chainCertificateOf } from '../x509/chain-link.ts'
import {
  CERTIFICATE_LIMIT,
  type PemBlock,
  pemBlocksOf,
  pemCertificatesOf,
  thumbprintOf,
} from '../x509/x509.ts'

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
  /** The line of the given text at which it begins; 0: not asked for. */
  readonly line: number
}

/** A block of a bundle that is left out. It vouches for nobody. */
export interface PassedOverBlock {
  /** The line of the text at which it begins. */
  readonly line: number
  /** At most 200 characters; null if it cannot be read. */
  readonly subject: string | null
  readonly reason: CertificateReason | 'duplicate' | 'attached_already'
  /** One sentence. */
  readonly message: string
}

/** The CAs of a text that can vouch, each once, and the other blocks of it. */
export interface CaBundle {
  readonly cas: readonly [CaCertificate, ...CaCertificate[]]
  readonly passedOver: readonly PassedOverBlock[]
}

const MAX_SUBJECT = 200

/**
 * Reads the CA certificates of a PEM text: one, or a bundle (a SPIFFE trust domain has two while it rotates).
 * Passes over each block that cannot be read, occurs twice, or could never end a good chain (`not_a_ca`,
 * `key_too_weak`, `certificate_expired`, `client_auth_missing`, `unknown_critical_extension`). Throws a
 * {@link CertificateError} with the fault of the first block if none is left, and if the text holds a private
 * key. One that is not valid yet is taken, so that it can be attached before it is needed.
 */
export function readCaBundle(caPem: string, at: number): CaBundle {
  const blocks = blocksOf(caPem)
  const cas = new Map<string, CaCertificate>()
  const passedOver: PassedOverBlock[] = []
  let fault: CertificateError | null = null
  for (const block of blocks) {
    const { ca, error } = caOf(block, at)
    const isKnown = ca !== null && cas.has(ca.digest)
    if (ca && !isKnown && error === null) cas.set(ca.digest, ca)
    else
      passedOver.push({
        line: block.line,
        subject: ca === null ? null : ca.subject.slice(0, MAX_SUBJECT),
        reason: error?.reason ?? 'duplicate',
        message: error?.message ?? 'The text holds this certificate twice.',
      })
    fault ??= error
  }
  const [first, ...rest] = cas.values()
  if (first) return { cas: [first, ...rest], passedOver }
  throw fault ?? unreadableBlock('The text holds no PEM certificate.')
}

function blocksOf(caPem: string): readonly PemBlock[] {
  let blocks: readonly PemBlock[]
  try {
    blocks = pemBlocksOf(caPem)
  } catch (cause) {
    throw unreadableBlock('The text is longer than 256 KiB.', cause)
  }
  const key = blocks.find(({ label }) => label.includes('PRIVATE KEY'))
  if (key)
    throw unreadableBlock(
      `The text holds a private key, at line ${key.line}. Send certificates alone, and replace that key.`,
    )
  if (blocks.length > CERTIFICATE_LIMIT)
    throw unreadableBlock(`The text holds more than ${CERTIFICATE_LIMIT} certificates.`)
  return blocks
}

/** Reads the CA of a block. With an error it is not one that can vouch. */
function caOf(
  { label, line, base64 }: PemBlock,
  at: number,
): { readonly ca: CaCertificate | null; readonly error: CertificateError | null } {
  if (label !== 'CERTIFICATE' && label !== 'X509 CERTIFICATE')
    return { ca: null, error: unreadableBlock(`This block is no certificate: ${label}.`) }
  if (base64 === null)
    return {
      ca: null,
      error: unreadableBlock('This block does not end, or holds other characters than base64.'),
    }
  let ca: CaCertificate | null = null
  try {
    const x509 = new X509Certificate(Buffer.from(base64, 'base64'))
    ca = describe(x509, line)
    checkTrustAnchor(chainCertificateOf(x509), at)
    return { ca, error: null }
  } catch (error) {
    if (error instanceof CertificateError) return { ca, error }
    return { ca, error: unreadableBlock('A certificate cannot be read.', error) }
  }
}

const unreadableBlock = (message: string, cause?: unknown): CertificateError =>
  new CertificateError('certificate_unreadable', message, cause)

/** Reads certificates that were checked when they came: one that has ended since, too. */
export const knownCaCertificates = (caPem: string): readonly CaCertificate[] =>
  pemCertificatesOf(caPem).map((x509) => describe(x509, 0))

function describe(x509: X509Certificate, line: number): CaCertificate {
  return {
    pem: x509.toString(),
    digest: thumbprintOf(x509.raw),
    // One attribute a line; OpenSSL has escaped the line ends inside them.
    subject: x509.subject.replaceAll('\n', ', '),
    notAfter: x509.validToDate.getTime(),
    line,
  }
}
