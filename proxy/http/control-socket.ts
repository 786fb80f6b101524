import { openSync } from 'node:fs'
import { chmod, rm } from 'node:fs/promises'
import type { RequestListener, Server } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { createServer } from '../../db/support/node-http.ts'
import { LingeringConnections, makeLingerable } from '../tls/lingering.ts'
import { rememberUid } from './local-uid.ts'

/** The longest path of a socket: Linux takes 107 bytes, macOS 103. */
const PATH_MAX_BYTES = 100

/**
 * Returns the path of the control socket of a data directory, as `bind` and `connect` take it. On Linux a
 * path that is too long leads through a descriptor of its directory. Throws one sentence if it cannot be
 * shortened.
 */
export function controlPath(dataDirectory: string): string {
  const path = join(dataDirectory, 'control.sock')
  if (Buffer.byteLength(path) <= PATH_MAX_BYTES) return path
  if (process.platform === 'linux')
    return join(`/proc/self/fd/${openSync(dataDirectory, 'r')}`, 'control.sock')
  throw new Error(
    `MCP_PROXY_DATA_DIR is too long for a Unix socket in it (${path}, at most ${PATH_MAX_BYTES} bytes): choose a shorter path`,
  )
}

export function isGatewayRunning(path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ECONNREFUSED') resolve(false)
      else reject(error)
    })
  })
}

/**
 * Opens the control socket for the local operator. It is also the lease of the data directory: the process
 * that listens on it is the one writer of its ledger. Mode 0600 in a directory of mode 0700. Throws one
 * sentence if another process holds it. Until `serve` sets the listener requests get 503.
 */
export async function openControl(dataDirectory: string): Promise<ControlSocket> {
  const path = controlPath(dataDirectory)
  if (await isGatewayRunning(path)) {
    throw new Error(`another Sallyport is running on the data directory ${dataDirectory}: stop it first`)
  }
  // A socket that nobody answers on was left by a crash.
  await rm(path, { force: true })
  let handle: RequestListener = (_req, res) => void res.writeHead(503).end()
  const server = createServer((req, res) => handle(req, res))
  const lingering = new LingeringConnections()
  server.on('connection', rememberUid)
  server.on('connection', (socket) => makeLingerable(socket, lingering))
  await listenOnSocket(server, path)
  await chmod(path, 0o600)
  return {
    serve: (listener) => {
      handle = listener
    },
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve))
      server.closeAllConnections()
      lingering.endAll()
      await closed
      await rm(path, { force: true })
    },
  }
}

export interface ControlSocket {
  readonly serve: (handle: RequestListener) => void
  readonly close: () => Promise<void>
}

function listenOnSocket(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    // The mode is set by umask at the moment of creation, so that there is no moment in which it is wider.
    const umask = process.umask(0o177)
    server.listen(path, () => resolve())
    process.umask(umask)
  })
}
