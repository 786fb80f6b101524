import { execFileSync, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, renameSync } from 'node:fs'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import { openDatabase } from '../../../../db/engine.ts'
import {
  type EmbeddedPostgres,
  prepareServer,
  runInitdb,
  serverArgs,
  socketUrl,
  waitUntilAccepting,
} from '../../../../scripts/cluster/embedded-postgres.ts'
import { isInMemory } from '../../in-turn/memory.ts'
import { MADE_ONCE } from '../../made-once.ts'

/** A PostgreSQL server of one test process: files of its own, no port, gone with the process. */
export interface Cluster {
  /** The URL of one of its databases. */
  readonly url: (database: string) => string
  /** Makes an empty database, or a copy of one that nobody uses, by its URL. Returns its URL. */
  readonly fresh: (template?: string) => Promise<string>
  /** Makes a database that has run all migrations: whoever opens a fresh one runs them, for a quarter of a second. */
  readonly migrated: () => Promise<string>
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

let shared: Promise<Cluster> | null = null

/** The server of this process, started when it is first asked for. */
export function cluster(): Promise<Cluster> {
  shared ??= makeCluster()
  return shared
}

/**
 * Makes a server of its own. `prepare` fills its data folder, and returns settings in addition to those of
 * {@link cluster}.
 */
export async function makeCluster(prepare: (data: string) => readonly string[] = () => []): Promise<Cluster> {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-pg-'))
  const embedded = prepareServer(directory)
  initialise(embedded)
  const { data, program, options } = embedded
  const settings = [...SETTINGS, ...prepare(data)]

  const start = async (): Promise<void> => {
    const args = [program('postgres'), ...serverArgs(embedded, directory, settings)]
    const shell = spawn('/bin/sh', ['-c', UNTIL_WE_END, directory, ...args], {
      ...options,
      stdio: ['pipe', 'ignore', 'ignore'],
    })
    shell.unref()
    // A pipe of a child: it would keep this process alive too.
    ;(shell.stdin as Socket).unref()
    await waitUntilAccepting(url('postgres'))
  }
  const postmaster = (): number => Number(readFileSync(join(data, 'postmaster.pid'), 'utf8').split('\n')[0])
  const stop = async (how: 'fast' | 'immediate'): Promise<void> => {
    process.kill(postmaster(), how === 'fast' ? 'SIGINT' : 'SIGQUIT')
    while (existsSync(join(data, 'postmaster.pid'))) await sleep(5)
  }
  const port = settings.find((setting) => setting.startsWith('port='))
  const url = (database: string): string =>
    [socketUrl(directory, database), ...(port ? [port] : [])].join('&')
  const fresh = async (template?: string): Promise<string> => {
    const name = `t_${randomBytes(6).toString('hex')}`
    const client = new Client(url('postgres'))
    await client.connect()
    const copied = template ? `template ${databaseOf(template)}` : ''
    await client.query(`create database ${name} ${copied} ${isInMemory() ? FASTEST : ''}`)
    await client.end()
    return url(name)
  }
  let template: Promise<string> | null = null
  const migrate = async (): Promise<string> => {
    const made = await fresh()
    await (await openDatabase(made)).close()
    return made
  }
  const migrated = async (): Promise<string> => {
    template ??= migrate()
    return fresh(await template)
  }
  await start()
  return { url, fresh, migrated, start, stop, postmaster, directory, programs: dirname(program('postgres')) }
}

/** Fills a server's data folder: the first one of a run by initdb, which takes half a second of CPU time, others by a copy. */
function initialise(embedded: EmbeddedPostgres): void {
  const run = process.env[MADE_ONCE]
  const made = run === undefined ? null : join(run, 'postgres')
  if (made !== null && existsSync(made))
    return void execFileSync('cp', ['-a', `${made}/.`, embedded.data], { stdio: 'inherit' })
  runInitdb(embedded, ['--no-sync'])
  if (made === null) return
  const own = mkdtempSync(`${made}-`)
  execFileSync('cp', ['-a', `${embedded.data}/.`, own], { stdio: 'inherit' })
  try {
    renameSync(own, made)
  } catch {
    // Another process of the run was first.
  }
}

/** The way to copy a database that takes a third of the CPU time; on a disk it would wait for two checkpoints. */
export const FASTEST = 'strategy file_copy'

/** The name of a database in its URL. */
export const databaseOf = (url: string): string => new URL(url).pathname.slice(1)

// With fsync: the ledger asks for it. When each transaction was committed tells the order of rows of different streams.
const SETTINGS = [
  'max_connections=200',
  'shared_buffers=16MB',
  'max_wal_size=64MB',
  'track_commit_timestamp=on',
]

// However this process ends, its end of the pipe is closed then.
const UNTIL_WE_END =
  '"$@" & cat >/dev/null; kill -QUIT $! 2>/dev/null; wait; [ -e "$0/data/postmaster.pid" ] || rm -rf "$0"'
