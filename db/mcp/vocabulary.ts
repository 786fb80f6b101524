import type { Database } from '../database.ts'
import { storedCapabilities } from '../principals/pins.ts'
import { TABLES } from '../principals/tables.ts'
import { listMcpResources } from './resources.ts'

/**
 * A capability that calling something of a resource demands (spec §2.2). `tool`: null where it is the
 * resource's own.
 */
export interface DemandedCapability {
  readonly capability: string
  readonly resource: string
  readonly tool: string | null
}

/** Every capability that a registered resource demands, disabled ones too, by resource and tool. */
export async function toolDefined(db: Database): Promise<DemandedCapability[]> {
  const resources = await listMcpResources(db)
  return resources.flatMap(({ name: resource, required_capability: capability, tool_capabilities: own }) => [
    { capability, resource, tool: null },
    ...Object.keys(own)
      .sort()
      .map((tool) => ({ capability: own[tool] ?? capability, resource, tool })),
  ])
}

/**
 * Every capability that some principal holds, by name, and how many do: deactivated ones too, since they may
 * come back.
 */
export async function heldCapabilities({
  kysely,
}: Database): Promise<readonly { readonly capability: string; readonly principals: number }[]> {
  const held = new Map<string, number>()
  for (const { table } of Object.values(TABLES)) {
    // By set: principals share few.
    const sets = await kysely
      .selectFrom(kysely.dynamic.table(table).as('p'))
      .select(['p.capabilities', (select) => select.fn.countAll().as('principals')])
      .groupBy('p.capabilities')
      .execute()
    for (const { capabilities, principals } of sets) {
      for (const token of storedCapabilities(capabilities)) {
        held.set(token, (held.get(token) ?? 0) + Number(principals))
      }
    }
  }
  return [...held]
    .map(([capability, principals]) => ({ capability, principals }))
    .sort((one, other) => (one.capability < other.capability ? -1 : 1))
}
