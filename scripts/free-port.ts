import { type AddressInfo, createServer } from 'node:net'

/** Tells whether nobody listens on a port of 127.0.0.1. */
export async function isPortFree(port: number): Promise<boolean> {
  return (await bound(port)) !== null
}

/** A port of 127.0.0.1 that nobody has at this moment. Somebody may a moment later. */
export const freePort = async (): Promise<number> => (await bound(0)) ?? freePort()

/** Listens for a moment. Returns the port; null if it is taken. */
function bound(port: number): Promise<number | null> {
  const probe = createServer()
  return new Promise((resolve) => {
    probe.once('error', () => resolve(null))
    probe.listen(port, '127.0.0.1', () => {
      // Proven: it listens on a port.
      const address = probe.address() as AddressInfo
      probe.close(() => resolve(address.port))
    })
  })
}
