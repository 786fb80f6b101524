import type { RequestListener } from 'node:http'
import type { Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { networkMatcher } from '../boot/networks.ts'
import type { ListenAddress, Settings } from '../boot/settings.ts'
import type { ConnectionLimit } from '../tls/connection-limit.ts'
import type { HandshakeFault } from '../tls/doorkeeper.ts'
import { type ConnectionTimers, createTlsServer, type TlsMaterial, type TlsServer } from './server.ts'

interface ListenerHandlers {
  readonly runtime: RequestListener
  /** Used if `MCP_PROXY_ADMIN_LISTEN` gives administration a listener of its own. */
  readonly admin: RequestListener
  /** Used if `MCP_PROXY_PEOPLE_LISTEN` opens a listener for people; its certificate, if it has one of its own. */
  readonly people: RequestListener
  readonly peopleTls: TlsMaterial | null
  /** The connections that may be open at once; of a listener of administration alone, its own. */
  readonly connections: Readonly<Record<'runtime' | 'admin', ConnectionLimit>>
  /** True: TLS lies on the socket itself (`proxy/tls/socket-tap.ts`). */
  readonly direct: boolean
  /** Called with each handshake that did not come to its end. */
  readonly onHandshakeFault: (why: HandshakeFault) => void
}

export interface GatewayListeners {
  readonly url: string
  readonly adminUrl: string
  /** The base URLs of the runtime, one for each of its host names. */
  readonly baseUrls: readonly string[]
  /** The port of the listener for people; null: it is closed. */
  readonly peoplePort: number | null
  /**
   * Swaps the server's certificate for handshakes to come, that of people's listener if it has none of its own.
   * Open connections keep theirs.
   */
  readonly useCertificate: (tls: TlsMaterial) => void
  /** The same of people's listener alone. */
  readonly usePeopleCertificate: (tls: TlsMaterial) => void
  /** Stops accepting and closes idle connections; resolves when the last one has closed. */
  readonly close: () => Promise<void>
  readonly destroy: () => void
}

export class OpenListeners {
  /** Null until they are open. */
  current: GatewayListeners | null = null
  readonly #publicUrls: Settings['publicUrls']
  readonly #adminOrigins: Settings['adminOrigins']

  constructor({ publicUrls, adminOrigins }: Pick<Settings, 'publicUrls' | 'adminOrigins'>) {
    this.#publicUrls = publicUrls
    this.#adminOrigins = adminOrigins
  }

  /** The base URLs that clients reach the gateway by. Empty until the listeners are open. */
  readonly baseUrls = (): readonly string[] => this.#publicUrls ?? this.current?.baseUrls ?? []

  /** The same of administration, which may have a listener of its own. */
  readonly adminUrls = (): readonly string[] => [
    ...new Set([...this.baseUrls(), ...(this.current ? [this.current.adminUrl] : [])]),
  ]

  /** The origins that browsers may have its pages from: these, and the operator's further ones. */
  readonly adminPages = (): readonly string[] => [...this.#adminOrigins, ...this.adminUrls()]

  /** `iss` of access tokens. */
  readonly issuer = (): string => this.baseUrls()[0] ?? ''
}

export async function openListeners(
  settings: Settings,
  tls: TlsMaterial,
  timers: ConnectionTimers,
  handlers: ListenerHandlers,
): Promise<GatewayListeners> {
  const door = {
    isBalancer: settings.balancers && networkMatcher(settings.balancers),
    direct: handlers.direct,
    onFault: handlers.onHandshakeFault,
  }
  const made = (role: 'runtime' | 'admin') =>
    createTlsServer(tls, timers, handlers[role], { ...door, connections: handlers.connections[role] })
  const runtime = made('runtime')
  const admin = settings.adminListen ? made('admin') : null
  const people = settings.people ? peopleServer(tls, timers, handlers, door) : null
  const servers = [runtime, admin, people].filter((server) => server !== null)
  try {
    const { listen: address, adminListen, reusePort } = settings
    await listen(runtime.server, { ...address, reusePort, variable: 'MCP_PROXY_LISTEN' })
    if (admin && adminListen)
      await listen(admin.server, { ...adminListen, reusePort, variable: 'MCP_PROXY_ADMIN_LISTEN' })
    if (people && settings.people)
      await listen(people.server, {
        ...settings.people.listen,
        reusePort,
        variable: 'MCP_PROXY_PEOPLE_LISTEN',
      })
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
    peoplePort: people && portOf(people.server),
    useCertificate: (next) => {
      for (const server of servers) if (server !== people || !handlers.peopleTls) server.use(next)
    },
    usePeopleCertificate: (next) => people?.use(next),
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

type ListenerDoor = Omit<Parameters<typeof createTlsServer>[3], 'connections'>

/** Makes the listener for people, who are not asked for a certificate. Its connections are among the runtime's. */
const peopleServer = (
  tls: TlsMaterial,
  timers: ConnectionTimers,
  { people, peopleTls, connections: { runtime: connections } }: ListenerHandlers,
  door: ListenerDoor,
): TlsServer =>
  createTlsServer(peopleTls ?? tls, timers, people, { ...door, connections, asksCertificate: false })

/** Connections that the system holds before they are accepted, or as many as it allows (`net.core.somaxconn`). */
const BACKLOG = 65_535

interface ListenOptions extends ListenAddress {
  readonly reusePort: boolean
  /** The setting that the address is from. */
  readonly variable: string
}

function listen(server: Server, options: ListenOptions): Promise<void> {
  const { host, port, reusePort } = options
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(cannotListen(error, options)))
    server.listen({ host, port, reusePort, backlog: BACKLOG }, () => {
      server.removeAllListeners('error')
      resolve()
    })
  })
}

/** Returns the sentence for the operator that says why a listener could not be opened. */
export function cannotListen(error: NodeJS.ErrnoException, options: ListenOptions): Error {
  const { host, port, variable } = options
  const why = reasonOf(error, options)
  return new Error(`cannot listen on ${host}:${port} (${variable}): ${why}`, { cause: error })
}

function reasonOf({ code, message }: NodeJS.ErrnoException, options: ListenOptions): string {
  const { host, port, reusePort, variable } = options
  if (code === 'EADDRINUSE' && reusePort)
    return 'another process listens there without MCP_PROXY_REUSE_PORT=true, or as another user; stop it first'
  if (code === 'EADDRINUSE')
    return `another process listens there; take another port, e.g. ${suggestPort(variable, host, port)}`
  if (code === 'ENOTSUP' && reusePort)
    return 'this system cannot share a port between processes; remove MCP_PROXY_REUSE_PORT'
  return code ?? message
}

function suggestPort(variable: string, host: string, taken: number): string {
  const port = taken < 65_000 ? taken + 100 : 9543
  const setting = `${variable}=${host.includes(':') ? `[${host}]` : host}:${port}`
  return variable === 'MCP_PROXY_LISTEN' ? `make start PORT=${port}, or ${setting}` : setting
}

// Host names, not the address that is listened on: they are in the certificate.
function urlsOf(server: Server, { hostnames }: Settings): readonly string[] {
  const port = portOf(server)
  return hostnames.map((host) => `https://${host.includes(':') ? `[${host}]` : host}:${port}`)
}

// A listening TCP server: the address is an AddressInfo.
const portOf = (server: Server): number => (server.address() as AddressInfo).port
