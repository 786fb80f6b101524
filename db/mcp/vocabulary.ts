import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { storedCapabilities } from '../principals/pins.ts'
import { PRINCIPAL_TABLES } from '../principals/tables.ts'
import { allPages, noPause, type PagePause } from '../support/pages.ts'
import { listMcpResources } from './resources.ts'

/** A capability that a resource demands (spec §2.2). `tool`: null if it is the resource's own. */
export interface DemandedCapability {
  readonly capability: string
  readonly resource: string
  readonly tool: string | null
}

export async function listDemandedCapabilities(
  db: Database,
  pause: PagePause = noPause,
): Promise<DemandedCapability[]> {
  const demanded: DemandedCapability[] = []
  for (const [at, found] of (await listMcpResources(db)).entries()) {
    if (at % RESOURCES_AT_ONCE === 0) await pause()
    const { name: resource, required_capability: capability, tool_capabilities: own } = found
    if (capability !== null) demanded.push({ capability, resource, tool: null })
    const tools = Object.entries(own).map(([tool, demand]) => ({ capability: demand, resource, tool }))
    demanded.push(...tools.sort((one, other) => (one.tool < other.tool ? -1 : 1)))
  }
  return demanded
}

const RESOURCES_AT_ONCE = 50

/** The number of principals that hold a capability, by the types that have one. */
export type HolderCounts = Readonly<Record<string, number>>

/** Every capability that a principal holds, deactivated ones too, by name, and how many do. */
export async function heldCapabilities(
  { kysely }: Database,
  pause: PagePause = noPause,
): Promise<readonly { readonly capability: string; readonly holders: HolderCounts }[]> {
  const held = new Map<string, HolderCounts>()
  for (const [type, { table, id }] of Object.entries(PRINCIPAL_TABLES)) {
    const key = sql.ref<string>(`p.${id}`)
    const read = async (after: { readonly id: string } | undefined, limit: number) => {
      const rows = await kysely
        .selectFrom(kysely.dynamic.table(table).as('p'))
        .select([key.as('id'), 'p.capabilities'])
        .where(key, '>', after?.id ?? '')
        .orderBy(key)
        .limit(limit)
        .execute()
      for (const { capabilities } of rows) {
        for (const token of storedCapabilities(capabilities)) {
          const holders = held.get(token) ?? {}
          held.set(token, { ...holders, [type]: (holders[type] ?? 0) + 1 })
        }
      }
      return rows
    }
    await allPages(read, pause)
  }
  return [...held]
    .map(([capability, holders]) => ({ capability, holders }))
    .sort((one, other) => (one.capability < other.capability ? -1 : 1))
}
