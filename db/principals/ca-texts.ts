import { hash } from 'node:crypto'
import { LRUCache } from 'lru-cache'

/** A certificate in PEM, as it is read to build chains (certs/x509/x509.ts). */
const BLOCK = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----/g

/** The texts read last: each call of an SVID reads those of its agent. */
const known = new LRUCache<string, readonly string[]>({
  max: 1_024,
  maxSize: 2 ** 24,
  sizeCalculation: sizeOf,
})

/** Returns the digest of each certificate in a PEM text, sorted: lower-case hex SHA-256 of the DER. */
export function caDigests(pem: string): readonly string[] {
  const found = known.get(pem)
  if (found) return found
  const blocks = [...pem.matchAll(BLOCK)]
  const digests = blocks.map(([, base64 = '']) => hash('sha256', Buffer.from(base64, 'base64'))).toSorted()
  known.set(pem, digests)
  return digests
}

function sizeOf(digests: readonly string[], pem: string): number {
  return pem.length + 64 * digests.length + 1
}

/** Digests as a column holds them. */
export const printDigests = (digests: readonly string[]): string => JSON.stringify(digests.toSorted())

/** True if a text holds the certificates of these digests, printed, and no others. */
export const isTextOf = (pem: string, printed: string | null): boolean =>
  printDigests(caDigests(pem)) === printed
