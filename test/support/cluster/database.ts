import { execFileSync, spawn } from 'node:child_process'
import { chownSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client, type QueryResult } from 'pg'
import { type Cluster, cluster } from '../db/postgres/cluster.ts'
import type { Scope } from './scope.ts'

/** The PostgreSQL server behind all replicas, and a database of its own for one run. */
export interface SharedDatabase {
  readonly server: Cluster
  readonly name: string
  /** The server's Unix socket, for links. */
  readonly socket: string
  /** Its URL past all links. */
  readonly url: string
  /** Stops all processes of the server as they stand (SIGSTOP). */
  readonly freeze: () => void
  /** Lets them go on. */
  readonly thaw: () => void
}

/** Makes a database that holds nothing. */
export async function sharedDatabase(scope: Scope): Promise<SharedDatabase> {
  const server = await cluster()
  const url = await server.migrated()
  const name = new URL(url).pathname.slice(1)
  const stopped = new Set<number>()
  const stop = (pid: number): void => {
    if (tell(pid, 'SIGSTOP')) stopped.add(pid)
  }
  const thaw = (): void => {
    // Those that were stopped: once some go on and end, the list of children that is read meanwhile may leave one out,
    // which would stand for ever.
    for (const pid of stopped) tell(pid, 'SIGCONT')
    stopped.clear()
  }
  scope.teardown(thaw)
  return {
    server,
    name,
    socket: socketIn(server.directory),
    url,
    freeze: () => {
      // The first process first: nobody is to be made anew meanwhile.
      stop(server.postmaster())
      for (const pid of childrenOf(server.postmaster())) stop(pid)
    },
    thaw,
  }
}

/** Returns whether the process was there. */
function tell(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal)
  } catch {
    return false
  }
}

const socketIn = (directory: string): string => join(directory, '.s.PGSQL.5432')

/** Asks one question on a connection of its own. `withinMs`: where a server that is frozen is not to be waited for. */
export async function asked(
  url: string,
  text: string,
  values: readonly unknown[] = [],
  withinMs = 0,
): Promise<QueryResult> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: withinMs,
    ...(withinMs > 0 && { query_timeout: withinMs }),
  })
  client.on('error', () => {})
  try {
    await client.connect()
    return await client.query(text, [...values])
  } finally {
    const ended = client.end().catch(() => {})
    // A frozen server does not say goodbye.
    if (withinMs === 0) await ended
  }
}

function childrenOf(pid: number): readonly number[] {
  const text = readdirSync(`/proc/${pid}/task`).map((task) =>
    readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8'),
  )
  return text
    .join(' ')
    .split(' ')
    .filter((id) => id !== '')
    .map(Number)
}

/** A second server that has all that the first one has acknowledged. */
export interface Standby {
  readonly socket: string
  /** The first server is gone: from here on this one writes. Resolves once it does. */
  readonly promote: () => Promise<void>
  readonly url: string
}

/**
 * Gives the server a standby that must have each commit on its disk before it is acknowledged. The server is stopped
 * for it, and started again.
 */
export async function synchronousStandby(scope: Scope, { server, name }: SharedDatabase): Promise<Standby> {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-pg-'))
  const data = join(directory, 'data')
  await server.stop('fast')
  execFileSync('cp', ['-a', join(server.directory, 'data'), data])
  await server.start()
  writeFileSync(join(data, 'standby.signal'), '')
  const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {}
  if (user.uid !== undefined)
    for (const path of [directory, join(data, 'standby.signal')]) chownSync(path, NOBODY, NOBODY)
  const from = `host=${server.directory} user=postgres application_name=standby`
  const settings = [
    'listen_addresses=',
    'max_connections=200',
    'shared_buffers=16MB',
    'track_commit_timestamp=on',
    `primary_conninfo=${from}`,
  ]
  const args = [
    '-D',
    data,
    ...settings.flatMap((setting) => ['-c', setting]),
    '-c',
    `unix_socket_directories=${directory}`,
  ]
  const env = { LD_LIBRARY_PATH: join(server.directory, 'lib'), LC_ALL: 'C', PATH: '/usr/bin:/bin' }
  // However this process ends, its end of the pipe is closed then.
  const child = spawn(
    '/bin/sh',
    [
      '-c',
      '"$@" & cat >/dev/null; kill -QUIT $!; wait; rm -rf "$0"',
      directory,
      join(server.programs, 'postgres'),
      ...args,
    ],
    {
      ...user,
      env,
      stdio: ['pipe', 'ignore', 'ignore'],
    },
  )
  const ended = new Promise((resolve) => child.once('close', resolve))
  scope.teardown(async () => {
    child.stdin.end()
    await ended
    await asked(server.url('postgres'), 'alter system reset synchronous_standby_names').catch(() => {})
    rmSync(directory, { recursive: true, force: true })
  })
  child.unref()
  ;(child.stdin as Socket).unref()
  await asked(server.url('postgres'), "alter system set synchronous_standby_names = 'standby'")
  await asked(server.url('postgres'), 'select pg_reload_conf()')
  await until(async () => {
    const { rows } = await asked(server.url('postgres'), 'select sync_state from pg_stat_replication')
    return rows[0]?.sync_state === 'sync'
  })
  const url = (database: string): string =>
    `postgresql:///${database}?host=${encodeURIComponent(directory)}&user=postgres`
  return {
    socket: socketIn(directory),
    url: url(name),
    promote: async () => {
      await asked(url('postgres'), 'select pg_promote()')
    },
  }
}

const NOBODY = 65_534
const PATIENCE_MS = 20_000

async function until(holds: () => Promise<boolean>): Promise<void> {
  const end = performance.now() + PATIENCE_MS
  while (!(await holds())) {
    if (performance.now() > end) throw new Error('it never came to be so')
    await sleep(20)
  }
}
