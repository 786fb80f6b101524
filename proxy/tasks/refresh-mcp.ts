import type { Logger } from 'pino'
import type { Ledger } from '../../db/audit/ledger.ts'
import type { Database } from '../../db/database.ts'
import { findMcpResource, listMcpResources, type McpResource } from '../../db/mcp/resources.ts'
import { storeRead } from '../mcp/pinning/apply-read.ts'
import { type Inspect, type Inspection, inspectWithin } from '../mcp/pinning/inspect.ts'
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

export interface RefreshTask extends Task {
  /** Cuts the reads under way and begins no more. Resolves when database and ledger are needed no longer. */
  readonly stop: () => Promise<void>
}

/**
 * A resource that was never read, or could not be, is tried again so often; one that says that it has changed is believed
 * so often, since what it says costs rows in the ledger. ms.
 */
const RETRY_MS = 30_000
const MAX_READ_MS = 60_000
/** So many upstreams are read at once. */
const AT_ONCE = 8
/** How many tools of one read are named in the log; the ledger has them all. */
const MAX_LINES = 64

/**
 * Reads the tools of each enabled resource again, so that a changed definition is quarantined soon after it changed, and not
 * only when an operator looks (SECURITY threat 17). `run` is one round: it resolves when all that was due has begun, and
 * does not wait for an upstream that hangs.
 */
export function refreshMcp(sources: Sources): RefreshTask {
  const refresher = new Refresher(sources)
  let round: Promise<void> | null = null
  const run = (): Promise<void> => {
    round ??= refresher.round().finally(() => {
      round = null
    })
    return round
  }
  const stop = async (): Promise<void> => {
    refresher.cut()
    // What a round throws is for whoever called `run`.
    await Promise.allSettled([round])
    await refresher.ended()
  }
  return { name: 'refresh-mcp', everyMs: 5_000, run, stop }
}

class Refresher {
  readonly #sources: Sources
  readonly #stopping = new AbortController()
  /** By resource: when its last read began, or ended. */
  readonly #triedAt = new Map<string, number>()
  /** By resource: the read under way. None of them rejects. */
  readonly #underWay = new Map<string, Promise<void>>()

  constructor(sources: Sources) {
    this.#sources = sources
  }

  cut(): void {
    this.#stopping.abort()
  }

  async ended(): Promise<void> {
    await Promise.all(this.#underWay.values())
  }

  async round(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    const resources = await listMcpResources(this.#sources.database)
    for (const id of this.#due(resources)) {
      if (this.#underWay.size >= AT_ONCE) await Promise.race(this.#underWay.values())
      if (this.#stopping.signal.aborted) return
      this.#begin(id)
    }
    forget(this.#triedAt, resources)
  }

  #due(resources: readonly McpResource[]): readonly string[] {
    return resources
      .filter(({ enabled, resource_id: id }) => enabled && !this.#underWay.has(id))
      .filter((resource) => isDue(resource, this.#triedAt.get(resource.resource_id) ?? 0, this.#sources))
      .map(({ resource_id: id }) => id)
  }

  #begin(id: string): void {
    const { changed, clock, log } = this.#sources
    changed.delete(id)
    this.#triedAt.set(id, clock())
    const read = this.#refresh(id)
      .catch((error: unknown) =>
        log.error({ err: error, resource_id: id }, 'an MCP server was not read again'),
      )
      .finally(() => {
        this.#triedAt.set(id, clock())
        this.#underWay.delete(id)
      })
    this.#underWay.set(id, read)
  }

  async #refresh(id: string): Promise<void> {
    const { database, ledger, configDigest, clock, inspect } = this.#sources
    const { signal } = this.#stopping
    // Read now, not when it was found due: it may have been switched off while it waited for its turn.
    const resource = await findMcpResource(database, id)
    if (!resource?.enabled) return
    const inspection = await inspectWithin(inspect(), MAX_READ_MS)(resource, signal)
    // Says nothing of the upstream.
    if (signal.aborted) return
    const storing = { database, ledger, configDigest: configDigest(), at: clock() }
    // Overtaken by an operator: a later round reads what is then there.
    if (await storeRead(storing, resource, inspection)) tell(this.#sources.log, resource, inspection)
  }
}

function isDue(
  { resource_id: id, last_read_at: readAt, last_error: error }: McpResource,
  triedAt: number,
  { changed, intervalS, clock }: Sources,
): boolean {
  const since = clock() - Math.max(triedAt, readAt === null ? 0 : Date.parse(readAt))
  const wanted = changed.has(id) || readAt === null || error !== null
  if (wanted && since >= RETRY_MS) return true
  return intervalS() > 0 && since >= intervalS() * 1000
}

function tell(log: Logger, { name }: McpResource, inspection: Inspection): void {
  if (!inspection.ok) {
    log.warn({ resource: name, problem: inspection.problem }, 'an MCP server could not be read')
    return
  }
  const { quarantined } = inspection.pins
  for (const { tool } of quarantined.slice(0, MAX_LINES)) {
    log.warn({ resource: name, tool, quarantined: quarantined.length }, 'an MCP tool was quarantined')
  }
}

function forget(triedAt: Map<string, number>, resources: readonly McpResource[]): void {
  const known = new Set(resources.map(({ resource_id: id }) => id))
  for (const id of triedAt.keys()) if (!known.has(id)) triedAt.delete(id)
}
