// node one-server.ts COMMAND…: runs a command with one PostgreSQL for all the tests that it starts, whose databases are dropped
// as the processes end that made them. A server of its own costs each test file a second and a half.
import { spawn } from 'node:child_process'
import { Client } from 'pg'
import { keepInMemory } from '../../in-turn/memory.ts'
import { cluster } from './cluster.ts'
import { PREFIX, SWEPT } from './server.ts'

/** Between two looks for databases that nobody needs any more. ms. */
const SWEEP_MS = 3_000

keepInMemory()
const [command = '', ...args] = process.argv.slice(2)
const url = (await cluster()).url('postgres')
const client = new Client(url)
await client.connect()

const env = { ...process.env, TEST_DATABASE_URL: url, [SWEPT]: 'true' }
const child = spawn(command, args, { stdio: 'inherit', env })
// Whoever stops us stops it.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal))
const sweeping = setInterval(() => void sweep().catch(() => undefined), SWEEP_MS)
child.once('error', (error) => {
  throw error
})
child.once('close', (code) => {
  clearInterval(sweeping)
  // The server ends with this process, and all that is on it.
  process.exit(code ?? 1)
})

async function sweep(): Promise<void> {
  const { rows } = await client.query<{ name: string }>(
    `select datname as name from pg_database where starts_with(datname, '${PREFIX}')`,
  )
  for (const { name } of rows) {
    const pid = Number(name.slice(PREFIX.length).split('_')[0])
    if (!isThere(pid)) await client.query(`drop database if exists ${name} with (force)`)
  }
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
