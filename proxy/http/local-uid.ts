import type { Socket } from 'node:net'

/** On the socket itself, as the certificate of a TLS connection is. */
const UID = Symbol('uid')

interface Known {
  [UID]?: number | null
}

/** Finds out, once, which user's process has connected to the control socket, and remembers it. */
export function rememberUid(socket: Socket & Known): void {
  socket[UID] = process.getuid?.() ?? null
}

/** The user id of the process behind a connection of the control socket; null of any other connection. */
export const uidOf = (socket: Socket & Known): number | null => socket[UID] ?? null
