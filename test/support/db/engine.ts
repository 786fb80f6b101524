import { join } from 'node:path'
import { openDatabase } from '../../../db/engine.ts'
import { server } from './postgres/server.ts'

/** The engine that this run of the tests is for: `TEST_ENGINE=postgres make test`. */
export const ENGINE = process.env.TEST_ENGINE === 'postgres' ? 'postgres' : 'sqlite'

/** The variable that names a SQLite file which has run all migrations and holds nothing else. */
export const MIGRATED_SQLITE = 'TEST_MIGRATED_SQLITE'

/** Why a test that looks into the database's file is left out; false where there is one. */
export const skipWithoutFile = ENGINE === 'sqlite' ? false : 'it looks into the file of a SQLite database'

/** The URL of each directory's database: who opens it again finds what is in it. */
const urls = new Map<string, string>()

/** The URL of the database of a directory, on this run's engine: empty when it is first asked for. */
export async function databaseUrl(directory: string): Promise<string> {
  if (ENGINE === 'sqlite') return `sqlite:${join(directory, 'sallyport.db')}`
  const url = urls.get(directory) ?? (await (await server()).fresh())
  urls.set(directory, url)
  return url
}

/** The settings that give the gateway of a data directory its database. On SQLite it finds it by itself. */
export async function databaseSettings(dataDir: string): Promise<Record<string, string>> {
  if (ENGINE === 'sqlite') return {}
  template ??= migrated()
  const url = urls.get(dataDir) ?? (await (await server()).fresh(await template))
  urls.set(dataDir, url)
  return { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_KEY_PASSPHRASE: PASSPHRASE }
}

/** An empty database of this process that has run all migrations: a gateway would run them, each one anew. */
async function migrated(): Promise<string> {
  const url = await (await server()).fresh()
  await (await openDatabase(url)).close()
  return url
}

let template: Promise<string> | null = null

const PASSPHRASE = 'the passphrase of all replicas'
