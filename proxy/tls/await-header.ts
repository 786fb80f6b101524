import type { Socket } from 'node:net'
import { type ProxiedClient, ProxyHeader } from './proxy-header.ts'

interface ProxyHeaderCallbacks {
  /** The header is whole: null where the connection itself counts. What is behind it can be read from the socket. */
  readonly named: (caller: ProxiedClient | null) => void
  /** The connection is not what it should be. */
  readonly failed: () => void
  /** The peer has ended before it has said anything, as a look at an open port does. */
  readonly left: () => void
}

/** Reads the header of the PROXY protocol from a paused socket, which it leaves paused. Tells one of three things once. */
export function awaitProxyHeader(socket: Socket, { named, failed, left }: ProxyHeaderCallbacks): void {
  const header = new ProxyHeader()
  const take = (piece: Buffer): void => {
    try {
      const whole = header.add(piece)
      if (whole === null) return
      stop()
      if (whole.rest.length > 0) socket.unshift(whole.rest)
      named(whole.caller)
    } catch {
      stop()
      failed()
    }
  }
  const end = (): void => {
    stop()
    if (header.begun) failed()
    else left()
  }
  const stop = (): void => {
    socket.pause()
    socket.off('data', take).off('end', end).off('error', end)
  }
  socket.on('data', take).on('end', end).on('error', end)
  socket.resume()
}
