import { hash } from 'node:crypto'

/** Bytes of a hash of the tree: SHA-256. */
export const HASH_BYTES = 32

const LEAF = Buffer.of(0)

/** The root of a tree without leaves (RFC 6962, section 2.1). */
export const EMPTY_ROOT: Buffer = hash('sha256', '', 'buffer')

/** The hash of a leaf (RFC 6962, section 2.1): of the canonical bytes of a row, as text or as UTF-8. */
export const leafHash = (leaf: string | Uint8Array): Buffer =>
  digest(typeof leaf === 'string' ? `\0${leaf}` : Buffer.concat([LEAF, leaf]))

// Filled again for each node: most of a node's time was the making of buffers.
const node = Buffer.from([1, ...Buffer.alloc(2 * HASH_BYTES)])

export function nodeHash(left: Uint8Array, right: Uint8Array): Buffer {
  if (left.length !== HASH_BYTES || right.length !== HASH_BYTES)
    throw new RangeError(`a node has two hashes of ${HASH_BYTES} bytes`)
  node.set(left, 1)
  node.set(right, 1 + HASH_BYTES)
  return digest(node)
}

// A text between: Node takes twice as long to give bytes.
const digest = (data: string | Uint8Array): Buffer => Buffer.from(hash('sha256', data, 'binary'), 'latin1')

/** The root of a perfect subtree over hashes that lie one after the other; their number is a power of two. */
export function perfectRoot(hashes: Uint8Array): Buffer {
  const bytes = Buffer.from(hashes.buffer, hashes.byteOffset, hashes.byteLength)
  if (bytes.length === HASH_BYTES) return Buffer.from(bytes)
  const half = bytes.length / 2
  return nodeHash(perfectRoot(bytes.subarray(0, half)), perfectRoot(bytes.subarray(half)))
}
