import { cluster } from './postgres/cluster.ts'

/** The engine that this run of the tests is for: `TEST_ENGINE=postgres make test`. */
export const ENGINE = process.env.TEST_ENGINE === 'postgres' ? 'postgres' : 'sqlite'

/** The settings that give a gateway of a test a database of its own on this run's engine. */
export async function databaseSettings(): Promise<Record<string, string>> {
  if (ENGINE === 'sqlite') return {}
  return {
    MCP_PROXY_DATABASE_URL: await (await cluster()).fresh(),
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
  }
}
