import { isDeepStrictEqual } from 'node:util'
import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { findMcpResource, listMcpResources, type McpResource } from '../../db/mcp/resources.ts'
import { storeRead } from '../mcp/pinning/apply-read.ts'
import {
  type InspectUpstream,
  inspectWithin,
  skippedIn,
  type UpstreamInspection,
} from '../mcp/pinning/inspect.ts'
import { type RoundsTask, rounds } from './rounds.ts'

interface McpRefreshDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: () => string
  readonly inspect: () => InspectUpstream
  /** Seconds between two readings. 0: only announced changes, and resources never read. */
  readonly intervalS: () => number
  /** The ids of resources that announced a change of their tools. */
  readonly changed: Set<string>
  readonly clock: () => number
  readonly log: Logger
}

/**
 * The interval after which a failed reading is tried again; it doubles each time. Also the least time between
 * two announced changes: each costs rows. ms.
 */
const RETRY_MS = 30_000
/** The longest such interval. ms. */
const MAX_RETRY_MS = 300_000
const MAX_READ_MS = 60_000
const AT_ONCE = 8
const MAX_LINES = 64
/** The number of skipped tools that a line names; the resource has more. */
const MAX_TOLD = 8

/**
 * Reads the tools of each enabled resource again, so that a changed definition is soon quarantined
 * (docs/threats.md#threat-17). A round does not wait for an upstream that hangs.
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
  /** The attempts at each resource, by its id. */
  readonly #attempts = new Map<string, ReadAttempts>()

  constructor(sources: McpRefreshDependencies) {
    this.#sources = sources
  }

  /** The other processes have passed on the announcements they got. */
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
        resource.enabled && isDue(resource, this.#attempts.get(resource.resource_id), this.#sources),
    )
    yield* due.map(({ resource_id: id }) => id)
    const known = new Set(resources.map(({ resource_id: id }) => id))
    for (const id of this.#attempts.keys()) if (!known.has(id)) this.#attempts.delete(id)
  }

  async read(id: string, signal: AbortSignal): Promise<void> {
    const { changed, clock, log } = this.#sources
    changed.delete(id)
    const attempts = this.#attempts.get(id) ?? { at: 0, failures: 0 }
    this.#attempts.set(id, attempts)
    attempts.at = clock()
    try {
      await this.#refresh(id, attempts, signal)
    } catch (error) {
      log.error({ err: error, resource_id: id }, 'an MCP server was not read again')
    }
    attempts.at = clock()
  }

  async #refresh(id: string, attempts: ReadAttempts, signal: AbortSignal): Promise<void> {
    const { database, ledger, configDigest, clock, inspect, log } = this.#sources
    // Read now, not when it was found due: it may have been switched off while it waited for its turn.
    const resource = await findMcpResource(database, id)
    if (!resource?.enabled) return
    const inspection = await inspectWithin(inspect(), MAX_READ_MS)(resource, signal)
    // Says nothing of the upstream.
    if (signal.aborted) return
    const storing = { database, ledger, configDigest: configDigest(), at: clock() }
    // Overtaken by an operator: a later round reads the new state.
    if (!(await storeRead(storing, resource, inspection))) return
    reportState(log, resource, inspection, attempts)
    if (inspection.ok) reportTools(log, resource, inspection)
  }
}

interface ReadAttempts {
  /** The time at which the last one began, or ended. ms since the epoch. */
  at: number
  failures: number
}

function isDue(
  { resource_id: id, last_read_at: readAt, last_error: error }: McpResource,
  { at, failures }: ReadAttempts = { at: 0, failures: 0 },
  { changed, intervalS, clock }: McpRefreshDependencies,
): boolean {
  const since = clock() - Math.max(at, readAt === null ? 0 : Date.parse(readAt))
  if (changed.has(id) && since >= RETRY_MS) return true
  const retryMs = Math.min(RETRY_MS * 2 ** Math.max(failures - 1, 0), MAX_RETRY_MS)
  if ((readAt === null || error !== null) && since >= retryMs) return true
  return intervalS() > 0 && since >= intervalS() * 1000
}

/** Says once that a server is away, and once that it is back, however often it was tried in between. */
function reportState(
  log: Logger,
  { name, last_error: before }: McpResource,
  inspection: UpstreamInspection,
  attempts: ReadAttempts,
): void {
  const { problem = null } = inspection
  if (problem === null) {
    if (before !== null) log.info({ resource: name }, 'an MCP server can be read again')
    attempts.failures = 0
    return
  }
  attempts.failures += 1
  if (attempts.failures > 1) return
  const what = inspection.ok ? 'a part of the list of an MCP server' : 'an MCP server'
  log.warn({ resource: name, problem }, `${what} could not be read; it is tried again, ever more rarely`)
}

type GoodInspection = Extract<UpstreamInspection, { readonly ok: true }>

function reportTools(
  log: Logger,
  { name, server_facts: before }: McpResource,
  { facts, pins: { quarantined } }: GoodInspection,
): void {
  for (const { tool } of quarantined.slice(0, MAX_LINES)) {
    log.warn({ resource: name, tool, quarantined: quarantined.length }, 'an MCP tool was quarantined')
  }
  const { count, tools } = skippedIn(facts)
  if (count === 0 || isDeepStrictEqual({ count, tools }, { ...skippedIn(before) })) return
  log.warn(
    { resource: name, skipped: count, tools: tools.slice(0, MAX_TOLD) },
    'tools of an MCP server are skipped',
  )
}
