import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import type { Logger } from 'pino'
import type { Agent } from 'undici'
import { messageOf } from '../../db/support/error-message.ts'
import { isObject } from '../../db/support/json.ts'
import { collectBytes } from '../../plugins/collect.ts'
import type { BundleSource } from '../../plugins/pin/options.ts'
import { egressAgent } from '../egress/agent.ts'
import { type RoundsTask, rounds } from '../tasks/rounds.ts'

/** The state of a followed bundle, as this process has read it. ms since the epoch. */
export interface BundleStanding {
  /** The last good reading. */
  readonly readAt: number | null
  /** Why the last reading failed, if it did, and since when readings fail. */
  readonly problem: string | null
  readonly failingSince: number | null
}

interface FollowDependencies {
  /** The trust bundles of the configuration in force, by name. */
  readonly sources: () => Readonly<Record<string, BundleSource>>
  /** The names that agents follow. */
  readonly followed: () => Promise<readonly string[]>
  /** Returns the sound CAs of a PEM text. Throws if it has none. */
  readonly casOf: (pem: string, at: number) => Promise<string>
  /** Puts them in force for the agents that follow that name. */
  readonly put: (name: string, pem: string, source: BundleSource) => Promise<void>
  /** Tells whether this process does that for all that share the database. */
  readonly leads: () => boolean
  readonly standings: Map<string, BundleStanding>
  readonly clock: () => number
  readonly log: Logger
}

const TICK_MS = 2_000
const TIMEOUT_MS = 10_000
const AT_ONCE = 4
const MAX_SOURCE_BYTES = 256 * 1024
const FILE_EVERY_MS = 30_000
/** The refresh interval where the endpoint hints none (SPIFFE Federation §5.2.3), and the limits of a hint. */
const ENDPOINT_EVERY_MS = 300_000
const MIN_HINT_MS = 30_000
const MAX_HINT_MS = 3_600_000
const RETRY_MS = 30_000

interface FollowedBundle {
  source: BundleSource
  /** The CAs of the last good reading of this source, while this process led. PEM; null: none yet. */
  pem: string | null
  dueAt: number
  hasLed: boolean
}

/**
 * Reads the followed trust bundles again (docs/protocol.md#followed-bundles): files, and SPIFFE bundle endpoints
 * of the profile https_web. What is read last stays in force while a source cannot be read.
 */
export function followBundles(sources: FollowDependencies): RoundsTask {
  const agent = egressAgent({
    ...{ allowPrivate: true, connectMs: TIMEOUT_MS, answerMs: TIMEOUT_MS, keepAlive: false },
  })
  const known = new Map<string, FollowedBundle>()
  const task = rounds<string>({
    name: 'follow-bundles',
    everyMs: TICK_MS,
    atOnce: AT_ONCE,
    waits: false,
    due: async function* due() {
      const configured = sources.sources()
      if (Object.keys(configured).length === 0) return
      const names = (await sources.followed()).filter((name) => Object.hasOwn(configured, name))
      for (const name of known.keys()) if (!names.includes(name)) forget(name)
      yield* names
    },
    idOf: (name) => name,
    work: async (name, signal) => {
      try {
        await follow(name, signal)
      } catch (error) {
        if (!signal.aborted)
          sources.log.error({ err: error, bundle: name }, 'a trust bundle was not followed')
      }
    },
  })
  const stop = async (): Promise<void> => {
    await task.stop()
    await agent.destroy()
  }
  return { ...task, stop }

  function forget(name: string): void {
    known.delete(name)
    sources.standings.delete(name)
  }

  async function follow(name: string, signal: AbortSignal): Promise<void> {
    const source = sources.sources()[name]
    if (!source) return
    const leads = sources.leads()
    const entry = known.get(name) ?? { source, pem: null, dueAt: 0, hasLed: leads }
    known.set(name, entry)
    // Whoever led before may have put newer CAs in force than those that this process has read.
    const begins = leads && !entry.hasLed
    if (begins || JSON.stringify(entry.source) !== JSON.stringify(source))
      Object.assign(entry, { source, pem: null, dueAt: 0 })
    entry.hasLed = leads
    if (sources.clock() >= entry.dueAt) await read(name, entry, signal)
    if (entry.pem !== null && leads && sources.leads()) await sources.put(name, entry.pem, source)
  }

  async function read(name: string, entry: FollowedBundle, signal: AbortSignal): Promise<void> {
    const { standings, clock, log } = sources
    const before = standings.get(name)
    try {
      const { pem, everyMs } = await readSource(entry.source, agent, signal)
      entry.pem = inOrder(await sources.casOf(pem, clock()))
      entry.dueAt = clock() + everyMs
      standings.set(name, { readAt: clock(), problem: null, failingSince: null })
      if (before?.problem) log.info({ bundle: name }, 'a trust bundle can be read again')
    } catch (error) {
      // Says nothing of the source.
      if (signal.aborted) return
      const problem = messageOf(error).slice(0, 512)
      entry.dueAt = clock() + RETRY_MS
      const failingSince = before?.failingSince ?? clock()
      standings.set(name, { readAt: before?.readAt ?? null, problem, failingSince })
      if (!before?.problem)
        log.warn({ bundle: name, problem }, 'a trust bundle cannot be read: the CAs before stay in force')
    }
  }
}

/** A source may write the same CAs in another order. */
const inOrder = (pem: string): string =>
  (pem.match(/-----BEGIN[\s\S]+?-----END [A-Z0-9 ]+-----\n?/g) ?? []).toSorted().join('')

async function readSource(source: BundleSource, agent: Agent, signal: AbortSignal) {
  const text =
    source.file === undefined
      ? await readEndpoint(new URL(source.url ?? ''), agent, signal)
      : await readBundleFile(source.file)
  const isJson = text.trimStart().startsWith('{')
  if (isJson) return readSpiffeBundle(text, source.file === undefined ? ENDPOINT_EVERY_MS : FILE_EVERY_MS)
  if (source.file === undefined) throw new Error('the endpoint answers with no SPIFFE bundle: it is not JSON')
  return { pem: text, everyMs: FILE_EVERY_MS }
}

async function readBundleFile(path: string): Promise<string> {
  // A pipe would hold up its reader.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const stat = await file.stat()
    if (!stat.isFile()) throw new Error(`${path} is no file`)
    if (stat.size > MAX_SOURCE_BYTES) throw new Error(`${path} is larger than 256 KiB`)
    return await file.readFile('utf8')
  } finally {
    await file.close()
  }
}

async function readEndpoint(url: URL, agent: Agent, stopping: AbortSignal): Promise<string> {
  const { statusCode, body } = await agent.request({
    origin: url.origin,
    path: url.pathname + url.search,
    method: 'GET',
    headers: { accept: 'application/json' },
    signal: AbortSignal.any([stopping, AbortSignal.timeout(TIMEOUT_MS)]),
  })
  const bytes = await collectBytes(body, MAX_SOURCE_BYTES)
  if (statusCode !== 200)
    throw new Error(`the endpoint answered ${statusCode}; only 200 is read, and no redirect is followed`)
  if (bytes === null) throw new Error('the answer of the endpoint is larger than 256 KiB')
  return bytes.toString()
}

/** Reads the X.509 CAs of a SPIFFE bundle, a JWK set (SPIFFE Trust Domain and Bundle §4). `usual`: ms. */
function readSpiffeBundle(text: string, usual: number): { readonly pem: string; readonly everyMs: number } {
  const bundle: unknown = JSON.parse(text)
  const keys = isObject(bundle) && Array.isArray(bundle.keys) ? bundle.keys.filter(isObject) : []
  const blocks = keys.flatMap(({ use, x5c }) =>
    use === 'x509-svid' && Array.isArray(x5c) && typeof x5c[0] === 'string' ? [pemBlock(x5c[0])] : [],
  )
  if (blocks.length === 0) throw new Error('the bundle holds no key with use "x509-svid" and x5c')
  const hint = isObject(bundle) ? bundle.spiffe_refresh_hint : undefined
  const hinted = typeof hint === 'number' && hint > 0 ? hint * 1000 : usual
  return { pem: blocks.join(''), everyMs: Math.min(Math.max(hinted, MIN_HINT_MS), MAX_HINT_MS) }
}

const pemBlock = (base64: string): string =>
  ['-----BEGIN CERTIFICATE-----', ...(base64.match(/.{1,64}/g) ?? []), '-----END CERTIFICATE-----', ''].join(
    '\n',
  )
