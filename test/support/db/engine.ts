import { join } from 'node:path'
import { server } from './postgres/server.ts'

/** The engine that this run of the tests is for: `TEST_ENGINE=postgres make test`. */
export const ENGINE = process.env.TEST_ENGINE === 'postgres' ? 'postgres' : 'sqlite'

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
  return { MCP_PROXY_DATABASE_URL: await databaseUrl(dataDir), MCP_PROXY_KEY_PASSPHRASE: PASSPHRASE }
}

const PASSPHRASE = 'the passphrase of all replicas'
