import type { AddressInfo, Server } from 'node:net'

type Close = () => Promise<void>

/**
 * Listens on a free port of 127.0.0.1 and says so in the line that `test/bench/ground/children.ts` waits
 * for. The process ends on SIGTERM, after `close`, and when the process that started it is gone.
 */
export function sayReady(server: Server, close: Close = () => Promise.resolve()): void {
  server.listen(0, '127.0.0.1', () => {
    // A listening TCP server: the address is an AddressInfo.
    const { port } = server.address() as AddressInfo
    announce(`https://localhost:${port}`, close)
  })
}

/** Announces a server that listens already, as {@link sayReady} does. */
export function announce(url: string, close: Close): void {
  process.stdout.write(`${JSON.stringify({ msg: 'ready', url })}\n`)
  const stop = (): void => {
    void close().finally(() => process.exit(0))
  }
  process.on('SIGTERM', stop)
  process.on('disconnect', stop)
  // Ctrl-C reaches every process of the terminal: whoever started this one ends it.
  process.on('SIGINT', () => {})
}
