import { spawn } from 'node:child_process'
import { chownSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { waitUntilAccepting } from '../../../../scripts/cluster/embedded-postgres.ts'
import { installedProgram } from '../../../../scripts/cluster/haproxy.ts'

const PROGRAM = installedProgram('pgbouncer')

/** Why a test that needs a PgBouncer is left out; false where there is one. */
export const skipWithoutPgbouncer = PROGRAM === null ? 'skipped: no pgbouncer' : false

export interface TestPooler {
  /** The URL of the database, by the pooler. */
  readonly url: string
  /** Ends it, and starts it again at the same address, with other words. */
  readonly restart: (words: PoolerWords) => Promise<void>
}

/** Settings of PgBouncer, by their names; all others are as it comes. */
type PoolerWords = Readonly<Record<string, string>>

const PORT = 6432
const NOBODY = 65_534

/** A real PgBouncer in front of the server of a URL of test/support/db/postgres/cluster.ts. Ended with the test. */
export async function pgbouncer(t: Test, url: string, words: PoolerWords): Promise<TestPooler> {
  const directory = mkdtempSync(join(tmpdir(), 'sallyport-pool-'))
  const file = join(directory, 'pgbouncer.ini')
  if (process.getuid?.() === 0) chownSync(directory, NOBODY, NOBODY)
  const [host, through] = [new URL(url).searchParams.get('host') ?? '', new URL(url)]
  through.searchParams.set('host', directory)
  through.searchParams.set('port', String(PORT))
  let stop = async (): Promise<void> => {}
  const start = async (own: PoolerWords): Promise<void> => {
    const all = { unix_socket_dir: directory, listen_port: PORT, auth_type: 'any', ...own }
    const lines = Object.entries(all).map(([name, value]) => `${name} = ${value}`)
    writeFileSync(
      file,
      ['[databases]', `* = host=${host} user=postgres`, '[pgbouncer]', ...lines, ''].join('\n'),
    )
    // It does not run as root.
    const user = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {}
    const child = spawn(PROGRAM ?? '', ['-q', file], { ...user, cwd: directory, stdio: 'ignore' })
    const ended = new Promise((resolve) => child.once('close', resolve))
    stop = async () => {
      child.kill('SIGTERM')
      await ended
    }
    await waitUntilAccepting(through.href)
  }
  t.teardown(async () => {
    await stop()
    rmSync(directory, { recursive: true, force: true })
  })
  await start(words)
  return {
    url: through.href,
    restart: async (own) => {
      await stop()
      await start(own)
    },
  }
}
