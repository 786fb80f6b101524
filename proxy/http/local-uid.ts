import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import type * as Koffi from 'koffi'

/** On the socket itself, as the certificate of a TLS connection is. */
export const PEER_UID: unique symbol = Symbol('uid')

/** A connection, and the user id of the process behind it; absent if it is none of the control socket. */
export interface LocalConnection {
  [PEER_UID]?: number | null
}

interface SocketWithHandle extends LocalConnection {
  /** libuv's handle. Node documents no other way to the descriptor of a connection. */
  readonly _handle?: { readonly fd?: unknown } | null
}

/** Finds out, once, whose process has connected to the control socket; null: it cannot be asked. */
export function rememberUid(socket: Socket & SocketWithHandle): void {
  const fd = socket._handle?.fd
  loadedUidReader ??= uidReader()
  socket[PEER_UID] = typeof fd === 'number' && fd >= 0 ? loadedUidReader(fd) : null
}

/** Answers the user id at the other end of a Unix socket, as it was when that end connected. */
type UidReader = (fd: number) => number | null

let loadedUidReader: UidReader | undefined

/** On every Linux that Node 24 runs on. */
const SOL_SOCKET = 1
const SO_PEERCRED = 17
/** `struct ucred`: pid, uid and gid, 32 bits each (unix(7)). */
const UCRED_BYTES = 12
const UID_AT = 4

/** Asks the kernel on Linux (`SO_PEERCRED`, unix(7)); elsewhere nobody. */
function uidReader(): UidReader {
  try {
    return process.platform === 'linux' ? byPeerCredentials() : () => null
  } catch {
    // koffi has no library for this platform: who administers here is then `socket:unknown`.
    return () => null
  }
}

/** Throws if the foreign function interface cannot be loaded. */
function byPeerCredentials(): UidReader {
  const koffi = createRequire(import.meta.url)('koffi') as typeof Koffi
  // The C library that this process runs on, whichever it is.
  const getsockopt = koffi
    .load(null)
    .func('int getsockopt(int fd, int level, int name, void *value, _Inout_ uint32_t *bytes)')
  return (fd) => {
    const credentials = Buffer.alloc(UCRED_BYTES)
    const bytes = [UCRED_BYTES]
    const failed = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, bytes) !== 0
    return failed || bytes[0] !== UCRED_BYTES ? null : uidIn(credentials)
  }
}

/** The kernel writes 32 bits of ones if it knows nobody. */
function uidIn(credentials: Buffer): number | null {
  const uid = new Uint32Array(credentials.buffer, credentials.byteOffset + UID_AT, 1)[0]
  return uid === undefined || uid === 0xffff_ffff ? null : uid
}
