import type { Test } from 'tap'
import { mcpStage, type Stage } from '../../mcp/stage.ts'
import { cluster } from './cluster.ts'

/** Gateways on one database, each with a data directory of its own, and the database's URL. */
export interface Stages {
  readonly url: string
  readonly one: Stage
  readonly other: Stage
}

/** Two of them. `url`: of a database; absent: a new one of this process's server, which has run all migrations. */
export async function twoStages(t: Test, options: Parameters<typeof mcpStage>[1] = {}): Promise<Stages> {
  const url = await (await cluster()).migrated()
  const settings = {
    ...options.settings,
    MCP_PROXY_DATABASE_URL: url,
    MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
  }
  // At once: neither finds a CA.
  const [one, other] = await Promise.all([
    mcpStage(t, { ...options, settings, ownCa: true }),
    mcpStage(t, { ...options, settings, ownCa: true }),
  ])
  return { url, one, other }
}
