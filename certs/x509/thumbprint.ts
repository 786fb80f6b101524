import { hash } from 'node:crypto'

/**
 * Returns the thumbprint that a certificate is pinned by: lower-case hex SHA-256 of its DER (RFC 8705 §3.1).
 * The claim `x5t#S256` is the same digest in base64url. Does NOT look at the bytes' meaning.
 */
export function thumbprintOf(der: Uint8Array): string {
  return hash('sha256', der, 'hex')
}
