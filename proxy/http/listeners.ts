import type { RequestListener } from 'node:http'
import type { Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { within } from '../boot/networks.ts'
import type { Address, Settings } from '../boot/settings.ts'
import type { ConnectionLimit } from '../tls/connection-limit.ts'
import type { HandshakeFault } from '../tls/doorkeeper.ts'
import { createTlsServer, type Timers, type TlsMaterial } from './server.ts'

interface Handlers {
  readonly runtime: RequestListener
  /** Used where `MCP_PROXY_ADMIN_LISTEN` gives administration a listener of its own. */
  readonly admin: RequestListener
  /** The connections that may be open at once; of a listener of administration alone, its own. */
  readonly connections: Readonly<Record<'runtime' | 'admin', ConnectionLimit>>
  /** Told of each handshake that did not come to its end. */
  readonly onHandshakeFault: (why: HandshakeFault) => void
}

/** The open TLS listeners of a gateway. */
export interface Listeners {
  readonly url: string
  readonly adminUrl: string
  /**
   * The base URLs of the runtime, one for each of its host names: clients sign them in DPoP proofs unless the
   * settings name others.
   */
  readonly baseUrls: readonly string[]
  /** Swaps the server's certificate for handshakes to come. Open connections keep theirs. */
  readonly useCertificate: (tls: TlsMaterial) => void
  /** Stops accepting and closes idle connections; resolves when the last one has closed. */
  readonly close: () => Promise<void>
  /** Closes every connection now. */
  readonly destroy: () => void
}

/** Opens the runtime listener and, where the settings say so, the administration's. */
export async function openListeners(
  settings: Settings,
  tls: TlsMaterial,
  timers: Timers,
  handlers: Handlers,
): Promise<Listeners> {
  const door = {
    isBalancer: settings.balancers && within(settings.balancers),
    onFault: handlers.onHandshakeFault,
  }
  const made = (role: 'runtime' | 'admin') =>
    createTlsServer(tls, timers, handlers[role], { ...door, connections: handlers.connections[role] })
  const runtime = made('runtime')
  const admin = settings.adminListen ? made('admin') : null
  const servers = admin ? [runtime, admin] : [runtime]
  try {
    await listen(runtime.server, settings.listen, 'MCP_PROXY_LISTEN')
    if (admin && settings.adminListen)
      await listen(admin.server, settings.adminListen, 'MCP_PROXY_ADMIN_LISTEN')
  } catch (error) {
    for (const { server } of servers) server.close()
    throw error
  }
  const baseUrls = urlsOf(runtime.server, settings)
  const [url = ''] = baseUrls
  return {
    url,
    adminUrl: admin ? (urlsOf(admin.server, settings)[0] ?? '') : url,
    baseUrls,
    useCertificate: (next) => {
      for (const { use } of servers) use(next)
    },
    close: async () => {
      const closed = servers.map(({ server }) => new Promise((resolve) => server.close(resolve)))
      for (const { server } of servers) server.closeIdleConnections()
      await Promise.all(closed)
    },
    destroy: () => {
      for (const { destroy } of servers) destroy()
    },
  }
}

function listen(server: Server, { host, port }: Address, variable: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const taken = `another process listens there; take another port, e.g. ${another(variable, host, port)}`
      const why = error.code === 'EADDRINUSE' ? taken : (error.code ?? error.message)
      reject(new Error(`cannot listen on ${host}:${port} (${variable}): ${why}`, { cause: error }))
    })
    server.listen(port, host, () => {
      server.removeAllListeners('error')
      resolve()
    })
  })
}

/** Says how to ask for a port that is probably free. */
function another(variable: string, host: string, taken: number): string {
  const port = taken < 65_000 ? taken + 100 : 9543
  const setting = `${variable}=${host.includes(':') ? `[${host}]` : host}:${port}`
  return variable === 'MCP_PROXY_LISTEN' ? `make start PORT=${port}, or ${setting}` : setting
}

// Host names, not the address that is listened on: they are in the certificate, which a wildcard address is
// not.
function urlsOf(server: Server, { hostnames }: Settings): readonly string[] {
  // A listening TCP server: the address is an AddressInfo.
  const { port } = server.address() as AddressInfo
  return hostnames.map((host) => `https://${host.includes(':') ? `[${host}]` : host}:${port}`)
}
