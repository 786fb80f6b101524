import { existsSync, lstatSync, mkdirSync, mkdtempSync, realpathSync, symlinkSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from 'pg'
import {
  isReachable,
  prepareServer,
  runInitdb,
  serverArgs,
  socketUrl,
  waitUntilAccepting,
} from './embedded-postgres.ts'
import { startTied, type TiedProcess } from './tied.ts'

const DATABASE = 'sallyport'
/** Each gateway takes some dozens. */
const SETTINGS = ['max_connections=400', 'shared_buffers=64MB']
/** A path of a Unix socket has 103 bytes at least everywhere. */
const MAX_SOCKET_PATH_BYTES = 100
const SOCKET = '.s.PGSQL.5432'

export interface ClusterDatabase {
  /** For the owner of the directory, without a password. */
  readonly url: string
  readonly tied: TiedProcess
  readonly stop: () => Promise<void>
}

/** Starts the server in the cluster's directory, made if there is none yet. Rejects with its own words. */
export async function startDatabase(directory: string): Promise<ClusterDatabase> {
  const home = homeIn(directory)
  const embedded = prepareServer(home)
  if (!existsSync(join(embedded.data, 'PG_VERSION'))) runInitdb(embedded)
  const isShort = Buffer.byteLength(join(home, SOCKET)) <= MAX_SOCKET_PATH_BYTES
  const sockets = isShort ? home : await mkdtemp(join(tmpdir(), 'sallyport-cluster-'))
  const args = serverArgs(embedded, sockets, SETTINGS)
  const tied = await startTied(embedded.program('postgres'), args, { ...embedded.options, last: 'INT' })
  const early = tied.ended.then(({ output }) => {
    throw new Error(`PostgreSQL ended: ${lastLine(output)} (its data is in ${embedded.data})`)
  })
  await Promise.race([waitUntilAccepting(socketUrl(sockets, 'postgres')), early])
  // From here on its end is reported to those who wait for it.
  early.catch(() => {})
  await makeDatabase(socketUrl(sockets, 'postgres'))
  return {
    url: socketUrl(sockets, DATABASE),
    tied,
    stop: async () => {
      // Open sessions are ended, and committed rows are written.
      tied.signal('SIGINT')
      await tied.ended
      if (!isShort) await rm(sockets, { recursive: true, force: true })
    },
  }
}

const lastLine = (output: string): string => output.trim().split('\n').at(-1) ?? ''

/**
 * The server's directory. As root it runs as nobody, who may need a link from here to one that it can reach.
 */
function homeIn(directory: string): string {
  const home = join(directory, 'postgres')
  if (isThere(home)) return realpathSync(home)
  if (isReachable(directory)) mkdirSync(home, { mode: 0o700 })
  else symlinkSync(mkdtempSync('/var/tmp/sallyport-cluster-'), home)
  return realpathSync(home)
}

const isThere = (path: string): boolean => lstatSync(path, { throwIfNoEntry: false }) !== undefined

async function makeDatabase(url: string): Promise<void> {
  const client = new Client(url)
  await client.connect()
  try {
    const { rowCount } = await client.query('select from pg_database where datname = $1', [DATABASE])
    if (rowCount === 0) await client.query(`create database ${DATABASE}`)
  } finally {
    await client.end()
  }
}
