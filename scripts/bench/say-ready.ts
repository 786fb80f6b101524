import type { AddressInfo, Server } from 'node:net'

/**
 * Listens on a free port of 127.0.0.1 and says so in the line that `scripts/bench/children.ts` waits for. The process
 * ends on SIGTERM, after `close`, and when whoever started it is gone.
 */
export function sayReady(server: Server, close: () => Promise<void> = () => Promise.resolve()): void {
  server.listen(0, '127.0.0.1', () => {
    // A listening TCP server: the address is an AddressInfo.
    const { port } = server.address() as AddressInfo
    process.stdout.write(`${JSON.stringify({ msg: 'ready', url: `https://localhost:${port}` })}\n`)
  })
  const stop = (): void => {
    void close().finally(() => process.exit(0))
  }
  process.on('SIGTERM', stop)
  process.on('disconnect', stop)
  // Ctrl-C reaches every process of the terminal: whoever started this one ends it.
  process.on('SIGINT', () => {})
}
