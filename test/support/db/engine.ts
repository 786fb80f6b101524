import { join } from 'node:path'
import { openDatabase } from '../../../db/engine.ts'
import { server } from './postgres/server.ts'

/** The engine that this run of the tests is for: `TEST_ENGINE=postgres make test`. */
export const ENGINE = process.env.TEST_ENGINE === 'postgres' ? 'postgres' : 'sqlite'

/** The variable that names a PostgreSQL database of the run which has run all migrations. */
export const MIGRATED_DATABASE = 'TEST_MIGRATED_DATABASE'

/** Why a test that looks into the database's file is left out; false where there is one. */
export const skipWithoutFile = ENGINE === 'sqlite' ? false : 'it looks into the file of a SQLite database'

/** The URL of each directory's database: who opens it again finds what is in it. */
const urls = new Map<string, string>()

/** The URL of the database of a directory, on this run's engine: it holds nothing when it is first asked for. */
export async function databaseUrl(directory: string): Promise<string> {
  if (ENGINE === 'sqlite') return `sqlite:${join(directory, 'sallyport.db')}`
  template ??= migratedDatabase()
  const url = urls.get(directory) ?? (await (await server()).fresh(await template))
  urls.set(directory, url)
  return url
}

/** The settings that give the gateway of a data directory its database. On SQLite it finds it by itself. */
export async function databaseSettings(dataDir: string): Promise<Record<string, string>> {
  if (ENGINE === 'sqlite') return {}
  template ??= migratedDatabase()
  const url = urls.get(dataDir) ?? (await (await server()).fresh(await template))
  urls.set(dataDir, url)
  return { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_KEY_PASSPHRASE: PASSPHRASE }
}

/** The URL of a PostgreSQL database that has run all migrations: a gateway would run them again. */
export async function migratedDatabase(): Promise<string> {
  const made = process.env[MIGRATED_DATABASE]
  if (made !== undefined) return made
  const url = await (await server()).fresh()
  await (await openDatabase(url)).close()
  return url
}

let template: Promise<string> | null = null

const PASSPHRASE = 'the passphrase of all replicas'
