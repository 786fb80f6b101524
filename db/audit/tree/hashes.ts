import { hash } from 'node:crypto'

/** Bytes of a hash of the tree: SHA-256. */
export const HASH_BYTES = 32

const LEAF = Buffer.of(0)
const NODE = Buffer.of(1)

/** The root of a tree without leaves (RFC 6962, section 2.1). */
export const EMPTY_ROOT: Buffer = hash('sha256', '', 'buffer')

/** The hash of a leaf (RFC 6962, section 2.1): of the canonical bytes of a row, as text or as UTF-8. */
export const leafHash = (leaf: string | Uint8Array): Buffer =>
  typeof leaf === 'string'
    ? hash('sha256', `\0${leaf}`, 'buffer')
    : hash('sha256', Buffer.concat([LEAF, leaf]), 'buffer')

/** The hash of a node over its two children (RFC 6962, section 2.1). */
export const nodeHash = (left: Uint8Array, right: Uint8Array): Buffer =>
  hash('sha256', Buffer.concat([NODE, left, right]), 'buffer')

/** The root of a perfect subtree over hashes that lie one behind the other; their number is a power of two. */
export function perfectRoot(hashes: Uint8Array): Buffer {
  const bytes = Buffer.from(hashes.buffer, hashes.byteOffset, hashes.byteLength)
  if (bytes.length === HASH_BYTES) return Buffer.from(bytes)
  const half = bytes.length / 2
  return nodeHash(perfectRoot(bytes.subarray(0, half)), perfectRoot(bytes.subarray(half)))
}
