import type { Logger } from 'pino'
import type { Ledger } from '../../db/audit/ledger.ts'
import type { Database } from '../../db/database.ts'
import { listMcpResources, type McpResource } from '../../db/mcp-resources.ts'
import { storeRead } from '../mcp/apply-read.ts'
import type { Inspect } from '../mcp/inspect.ts'
import type { Task } from './every.ts'

interface Sources {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: () => string
  readonly inspect: () => Inspect
  /** Seconds between two readings of a resource. 0: only those that said they changed, and those never read. */
  readonly intervalS: () => number
  /** Ids of resources that said that their tools have changed. */
  readonly changed: Set<string>
  readonly clock: () => number
  readonly log: Logger
}

/**
 * A resource that was never read, or could not be, is tried again so often; one that says that it has changed is believed
 * so often, since what it says costs rows in the ledger. ms.
 */
const RETRY_MS = 30_000
const LONGEST_READ_MS = 60_000

/**
 * Reads the tools of each enabled resource again, so that a changed definition is quarantined soon after it changed, and not
 * only when an operator looks (SECURITY threat 17).
 */
export function refreshMcp(sources: Sources): Task {
  const triedAt = new Map<string, number>()
  return {
    name: 'refresh-mcp',
    everyMs: 5_000,
    run: async () => {
      const resources = await listMcpResources(sources.database)
      for (const resource of resources) {
        if (!resource.enabled || !isDue(resource, triedAt.get(resource.resource_id), sources)) continue
        triedAt.set(resource.resource_id, sources.clock())
        sources.changed.delete(resource.resource_id)
        await refresh(resource, sources)
      }
      forget(triedAt, resources)
    },
  }
}

function isDue(
  { resource_id: id, last_read_at: readAt, last_error: error }: McpResource,
  triedAt: number | undefined,
  { changed, intervalS, clock }: Sources,
): boolean {
  const since = clock() - Math.max(triedAt ?? 0, readAt === null ? 0 : Date.parse(readAt))
  const wanted = changed.has(id) || readAt === null || error !== null
  if (wanted && since >= RETRY_MS) return true
  return intervalS() > 0 && since >= intervalS() * 1000
}

async function refresh(resource: McpResource, sources: Sources): Promise<void> {
  const { database, ledger, configDigest, clock } = sources
  const inspection = await sources.inspect()(resource, AbortSignal.timeout(LONGEST_READ_MS))
  // Overtaken by an operator: the next round reads what is then there.
  await storeRead({ database, ledger, configDigest: configDigest(), at: clock() }, resource, inspection)
  if (inspection.ok) return
  sources.log.warn(
    { resource: resource.name, problem: inspection.problem },
    'an MCP server could not be read',
  )
}

function forget(triedAt: Map<string, number>, resources: readonly McpResource[]): void {
  const known = new Set(resources.map(({ resource_id: id }) => id))
  for (const id of triedAt.keys()) if (!known.has(id)) triedAt.delete(id)
}
