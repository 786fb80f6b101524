import { type ChildProcess, spawnSync } from 'node:child_process'
import { connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import type { McpPlace } from '../../load/mcp-messages.ts'
import type { Prepared } from '../gateway.ts'

/** A server of others that is measured beside the gateway, where it is installed. */
export interface Peer {
  readonly name: string
  /** What it does and how it is run, for the tables. */
  readonly what: string
  /** `mcp`: it is asked to call tools, and nothing else. */
  readonly serves: 'proxy' | 'llm' | 'mcp'
  /** Tells its version. Null: it is not installed. `installed`: the directory of `--peers`. */
  readonly version: (installed: string | undefined) => string | null
  readonly prepare: (place: PeerPlace) => Promise<PeerStart>
}

export interface PeerPlace {
  /** The run's own directory, which has the certificates. */
  readonly directory: string
  readonly upstreamPort: number
  readonly installed: string | undefined
}

/** A peer that is ready to be started, and how it wants to be asked. */
export interface PeerStart {
  readonly start: Prepared
  /** Lines added to the head of each request. */
  readonly headers?: readonly string[]
  readonly mcp?: McpPlace
}

/** The time that the slowest of them takes to listen. ms. */
const PATIENCE_MS = 120_000

/** Returns what a program prints when asked its version; null where there is none. */
export function said(command: string, args: readonly string[], version: RegExp): string | null {
  const { status, stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' })
  return status === 0 ? (version.exec(stdout + stderr)?.[1] ?? null) : null
}

/** Tells the version of a package in a Python environment. Null: there is none. */
export const pythonPackage = (environment: string, name: string): string | null =>
  said(
    `${environment}/bin/python`,
    ['-c', `import importlib.metadata as m; print("v", m.version("${name}"))`],
    /v (\S+)/,
  )

/** Finds a free port: they cannot pick one and say which, so one that was free a moment ago must do. */
export function freePort(): Promise<number> {
  const server = createServer()
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(0, '127.0.0.1', () => {
      const address = server.address()
      server.close(() => resolve(typeof address === 'object' && address ? address.port : 0))
    })
  })
}

/** Resolves with the port as soon as somebody listens on it. Rejects where the process ends before. */
export async function listening(port: number, child: ChildProcess): Promise<number> {
  const deadline = performance.now() + PATIENCE_MS
  while (performance.now() < deadline && child.exitCode === null) {
    if (await answers(port)) return port
    await pause(20)
  }
  throw new Error(`nothing listens on port ${port}`)
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
