import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { isAnythingIssued } from '../../db/principals/issued.ts'
import { readSetting, type SettingKey, writeSetting } from '../../db/settings.ts'
import type { Settings } from './settings.ts'

/** The names in every id and certificate of a service. */
export interface OrganisationNames {
  readonly organisation: string
  readonly trustDomain: string
}

/**
 * The names of the environment if it sets them, else those that the database remembers, else the defaults.
 */
export async function readNames(
  database: Database,
  { org, trustDomain, named }: Pick<Settings, 'org' | 'trustDomain' | 'named'>,
): Promise<OrganisationNames> {
  const stored = (key: SettingKey) => readSetting(database, key)
  return {
    organisation: named.org ? org : ((await stored('organisation')) ?? org),
    trustDomain: named.trustDomain ? trustDomain : ((await stored('trust_domain')) ?? trustDomain),
  }
}

/**
 * Remembers the names in the database. Throws one sentence if it has principals of others: ids and
 * certificates carry both (docs/protocol.md#settings).
 */
export async function storeNames(
  database: Database,
  ledger: Pick<Ledger, 'commit'>,
  { organisation, trustDomain }: OrganisationNames,
  at: number,
): Promise<void> {
  const names: readonly (readonly [SettingKey, string, string])[] = [
    ['organisation', organisation, 'MCP_PROXY_ORG'],
    ['trust_domain', trustDomain, 'MCP_PROXY_TRUST_DOMAIN'],
  ]
  for (const [key, value, variable] of names) {
    const stored = await readSetting(database, key)
    if (stored === value) continue
    if (stored !== undefined && (await isAnythingIssued(database))) {
      throw new Error(
        `${variable} is ${value}, but this data directory has principals of ${stored}: it cannot be changed`,
      )
    }
    await ledger.commit({ statements: [writeSetting(database, key, value, at)], entries: [] })
  }
}
