import { type AddressInfo, createServer, type Socket } from 'node:net'
import type { Test } from 'tap'

/** A provider that says exactly these bytes, and does with the connection what a provider should not. */
export interface RawUpstream {
  readonly url: string
  /**
   * Called with each connection once a whole request has come. The gateway's own reading of the list of
   * models is no such request: it is answered with a plain refusal, and its connection closed.
   */
  onRequest: (socket: Socket) => void
  /** Resolves when a connection of it has closed, other than a reading's. */
  readonly hungUp: Promise<void>
}

const NO_LIST = 'HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n'

/** Starts it on a port of its own; it stops with the test. */
export async function rawUpstream(t: Test): Promise<RawUpstream> {
  const hungUp = Promise.withResolvers<void>()
  const sockets = new Set<Socket>()
  const upstream: { url: string; onRequest: (socket: Socket) => void; hungUp: Promise<void> } = {
    url: '',
    onRequest: () => {},
    hungUp: hungUp.promise,
  }
  const server = createServer((socket) => {
    let text = ''
    sockets.add(socket)
    socket.on('error', () => {})
    let reading = false
    socket.once('close', () => {
      if (!reading) hungUp.resolve()
    })
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1')
      if (!isWhole(text)) return
      reading = text.startsWith('GET /v1/models')
      text = ''
      if (reading) socket.end(NO_LIST)
      else upstream.onRequest(socket)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  // A listening TCP server has an address and a port.
  const { port } = server.address() as AddressInfo
  upstream.url = `http://127.0.0.1:${port}`
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return upstream
}

function isWhole(text: string): boolean {
  const end = text.indexOf('\r\n\r\n')
  const length = Number(/content-length: (\d+)/i.exec(text)?.[1] ?? 0)
  return end >= 0 && text.length >= end + 4 + length
}
