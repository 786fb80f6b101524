import { cluster } from './postgres/cluster.ts'

/** The engine that this run of the tests is for: `TEST_ENGINE=postgres make test`. */
export const ENGINE = process.env.TEST_ENGINE === 'postgres' ? 'postgres' : 'sqlite'

/** Why a test that looks into the database's file is left out; false where there is one. */
export const skipWithoutFile = ENGINE === 'sqlite' ? false : 'it looks into the file of a SQLite database'

/** The URL of each data directory's database: a gateway that starts again on one finds its own. */
const urls = new Map<string, string>()

/** The settings that give the gateway of a data directory a database of its own on this run's engine. */
export async function databaseSettings(dataDir: string): Promise<Record<string, string>> {
  if (ENGINE === 'sqlite') return {}
  const url = urls.get(dataDir) ?? (await (await cluster()).fresh())
  urls.set(dataDir, url)
  return { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas' }
}
