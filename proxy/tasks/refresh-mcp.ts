import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { findMcpResource, listMcpResources, type McpResource } from '../../db/mcp/resources.ts'
import { storeRead } from '../mcp/pinning/apply-read.ts'
import { type InspectUpstream, inspectWithin, type UpstreamInspection } from '../mcp/pinning/inspect.ts'
import { type RoundsTask, rounds } from './rounds.ts'

interface McpRefreshDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: () => string
  readonly inspect: () => InspectUpstream
  /**
   * Seconds between two readings of a resource. 0: only those that announced a change, and those never read.
   */
  readonly intervalS: () => number
  /** The ids of resources that announced a change of their tools. */
  readonly changed: Set<string>
  readonly clock: () => number
  readonly log: Logger
}

/**
 * The interval at which a resource that was never read, or could not be, is tried again. It is also the least
 * time between two announced changes that are believed, since each costs rows in the ledger. ms.
 */
const RETRY_MS = 30_000
const MAX_READ_MS = 60_000
/** The number of upstreams that are read at once. */
const AT_ONCE = 8
/** The number of tools of one read that the log names; the ledger has them all. */
const MAX_LINES = 64

/**
 * Reads the tools of each enabled resource again, so that a changed definition is quarantined soon after it
 * changed, and not only when an operator looks (docs/threats.md#threat-17). A round does not wait for an
 * upstream that hangs.
 */
export function refreshMcp(sources: McpRefreshDependencies): RoundsTask {
  const refresher = new McpRefresher(sources)
  return rounds({
    name: 'refresh-mcp',
    everyMs: 5_000,
    leads: () => refresher.leads(),
    atOnce: AT_ONCE,
    waits: false,
    due: () => refresher.due(),
    idOf: (id) => id,
    work: (id, signal) => refresher.read(id, signal),
  })
}

class McpRefresher {
  readonly #sources: McpRefreshDependencies
  /** The times at which the last read of each resource began, or ended, by its id. */
  readonly #triedAt = new Map<string, number>()

  constructor(sources: McpRefreshDependencies) {
    this.#sources = sources
  }

  /**
   * One process reads for all that share the database. The others have passed on the announcements they got.
   */
  leads(): boolean {
    const { database, changed } = this.#sources
    const leads = database.leads('refresh-mcp')
    if (!leads) changed.clear()
    return leads
  }

  async *due(): AsyncGenerator<string> {
    const resources = await listMcpResources(this.#sources.database)
    const due = resources.filter(
      (resource) =>
        resource.enabled && isDue(resource, this.#triedAt.get(resource.resource_id) ?? 0, this.#sources),
    )
    yield* due.map(({ resource_id: id }) => id)
    const known = new Set(resources.map(({ resource_id: id }) => id))
    for (const id of this.#triedAt.keys()) if (!known.has(id)) this.#triedAt.delete(id)
  }

  async read(id: string, signal: AbortSignal): Promise<void> {
    const { changed, clock, log } = this.#sources
    changed.delete(id)
    this.#triedAt.set(id, clock())
    try {
      await this.#refresh(id, signal)
    } catch (error) {
      log.error({ err: error, resource_id: id }, 'an MCP server was not read again')
    }
    this.#triedAt.set(id, clock())
  }

  async #refresh(id: string, signal: AbortSignal): Promise<void> {
    const { database, ledger, configDigest, clock, inspect } = this.#sources
    // Read now, not when it was found due: it may have been switched off while it waited for its turn.
    const resource = await findMcpResource(database, id)
    if (!resource?.enabled) return
    const inspection = await inspectWithin(inspect(), MAX_READ_MS)(resource, signal)
    // Says nothing of the upstream.
    if (signal.aborted) return
    const storing = { database, ledger, configDigest: configDigest(), at: clock() }
    // Overtaken by an operator: a later round reads the new state.
    if (await storeRead(storing, resource, inspection)) report(this.#sources.log, resource, inspection)
  }
}

function isDue(
  { resource_id: id, last_read_at: readAt, last_error: error }: McpResource,
  triedAt: number,
  { changed, intervalS, clock }: McpRefreshDependencies,
): boolean {
  const since = clock() - Math.max(triedAt, readAt === null ? 0 : Date.parse(readAt))
  const wanted = changed.has(id) || readAt === null || error !== null
  if (wanted && since >= RETRY_MS) return true
  return intervalS() > 0 && since >= intervalS() * 1000
}

function report(log: Logger, { name }: McpResource, inspection: UpstreamInspection): void {
  if (!inspection.ok) {
    log.warn({ resource: name, problem: inspection.problem }, 'an MCP server could not be read')
    return
  }
  const { quarantined } = inspection.pins
  for (const { tool } of quarantined.slice(0, MAX_LINES)) {
    log.warn({ resource: name, tool, quarantined: quarantined.length }, 'an MCP tool was quarantined')
  }
}
