import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { Client } from 'pg'
import { isInMemory } from '../../in-turn/memory.ts'
import { cluster, databaseOf, FASTEST } from './cluster.ts'

/** A PostgreSQL server that a test has databases on, and is not the only one to use. */
export interface Server {
  /**
   * Makes an empty database, or a copy of one that nobody uses, by its URL. Returns its URL. It is gone after this
   * process.
   */
  readonly fresh: (template?: string) => Promise<string>
}

/** The server of TEST_DATABASE_URL, whose role may make databases, or else one of this process's own. */
export async function server(): Promise<Server> {
  const { TEST_DATABASE_URL: url } = process.env
  if (url === undefined) return cluster()
  shared ??= on(url)
  return shared
}

let shared: Server | null = null

/** Set where somebody drops the databases of processes that are gone: test/support/db/postgres/one-server.ts. */
export const SWEPT = 'TEST_DATABASES_SWEPT'

/** The names of the databases of a process. */
export const PREFIX = 'sallyport_test_'

function on(url: string): Server {
  const dropping = process.env[SWEPT] === undefined ? dropper(url) : null
  const strategy = dropping === null && isInMemory() ? FASTEST : ''
  return {
    fresh: async (template) => {
      const name = `${PREFIX}${process.pid}_${randomBytes(6).toString('hex')}`
      const client = new Client(url)
      await client.connect()
      // Said before it is made: whatever ends this process then, it is dropped.
      dropping?.write(`${name}\n`)
      const copied = template === undefined ? 'template0' : databaseOf(template)
      await client.query(`create database ${name} template ${copied} encoding 'UTF8' ${strategy}`)
      await client.end()
      const own = new URL(url)
      own.pathname = `/${name}`
      return own.href
    },
  }
}

/** Takes names of databases that are dropped when this process is over, however it ends. */
function dropper(url: string): Writable {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'drop-afterwards.ts'), url], {
    stdio: ['pipe', 'ignore', 'inherit'],
    detached: true,
  })
  child.unref()
  // A pipe of a child: it would keep this process alive too.
  ;(child.stdin as unknown as { unref(): void }).unref()
  return child.stdin
}
