import type { Logger } from 'pino'
import type { Ledger } from '../../db/audit/ledger.ts'
import type { Database } from '../../db/database.ts'
import { type ChangedAgent, changedAgents, markPushed } from '../../db/principals/federation.ts'
import { findPrincipal, type PrincipalRecord } from '../../db/principals/read.ts'
import type { TokenKeys } from '../auth/token-keys.ts'
import type { Task } from '../tasks/every.ts'
import { signAgent } from './agent-statement.ts'
import { BackOff } from './back-off.ts'
import { post } from './post.ts'

/** So many agents are pushed at once. */
const AT_ONCE = 4
/** So many of those that failed before are tried again in a pass: a pass must end, for what changes meanwhile. */
const RETRIES = 8
const PAGE = 200
const TIMEOUT_MS = 5_000

interface Sources {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly keys: Pick<TokenKeys, 'signer'>
  /** MCP_PROXY_FEDERATION_URL. */
  readonly url: string
  readonly issuer: () => string
  readonly clock: () => number
  readonly log: Logger
  /** How long the receiver may take. ms. Default 5,000. */
  readonly timeoutMs?: number
}

export interface FederationTask extends Task {
  /** Cuts what is under way and starts nothing more. Resolves when database and ledger are needed no longer. */
  readonly stop: () => Promise<void>
}

/**
 * Pushes each changed federated agent to the federation (spec §3): at least once, one push of an agent at a time, and no
 * revision after a higher one. A revision counts as pushed when the receiver answered 2xx and that is on disk.
 * `run` is one pass, which ends when everything that was due has been tried; a call during a pass joins it.
 */
export function federationTask(sources: Sources): FederationTask {
  const publisher = new Publisher(sources)
  let pass: Promise<void> | null = null
  const run = (): Promise<void> => {
    pass ??= publisher.pass().finally(() => {
      pass = null
    })
    return pass
  }
  const stop = async (): Promise<void> => {
    publisher.cut()
    // What it throws is for whoever called `run`.
    await Promise.allSettled([pass])
  }
  return { name: 'publish-federation', everyMs: 2_000, run, stop }
}

class Publisher {
  readonly #sources: Sources
  readonly #url: URL
  readonly #stopping = new AbortController()
  readonly #backOff = new BackOff()
  /** Owned by {@link pass}: by agent, the pushes under way. None of them rejects. */
  readonly #underWay = new Map<string, Promise<void>>()

  constructor(sources: Sources) {
    this.#sources = sources
    this.#url = new URL(sources.url)
  }

  cut(): void {
    this.#stopping.abort()
  }

  async pass(): Promise<void> {
    if (this.#stopping.signal.aborted) return
    try {
      for await (const changed of this.#due()) {
        if (this.#underWay.size >= AT_ONCE) await Promise.race(this.#underWay.values())
        if (this.#stopping.signal.aborted) break
        this.#start(changed)
      }
    } finally {
      await Promise.all(this.#underWay.values())
    }
  }

  // What was never tried goes first, so that agents that a receiver will not take hold up nobody else.
  async *#due(): AsyncGenerator<ChangedAgent> {
    const { database, clock } = this.#sources
    let page: readonly ChangedAgent[]
    let after = ''
    do {
      page = await changedAgents(database, { after, limit: PAGE })
      after = page.at(-1)?.agent_id ?? ''
      yield* page.filter(
        ({ agent_id: id, federation_revision: revision }) => !this.#backOff.holds(id, revision),
      )
    } while (page.length === PAGE)
    for (const id of this.#backOff.due(clock()).slice(0, RETRIES)) {
      yield { agent_id: id, federation_revision: 0 }
    }
  }

  #start(changed: ChangedAgent): void {
    const { agent_id: id } = changed
    // It was due twice: anew, and again.
    if (this.#underWay.has(id)) return
    const pushed = this.#push(changed).finally(() => this.#underWay.delete(id))
    this.#underWay.set(id, pushed)
  }

  async #push({ agent_id: id, federation_revision: noticed }: ChangedAgent): Promise<void> {
    const { database, ledger, clock, log } = this.#sources
    let revision = noticed
    try {
      // Read now, not when the change was noticed: what is sent is never older than it must be.
      const agent = await findPrincipal(database, 'agent', id)
      if (!agent?.federated) return this.#backOff.settled(id)
      revision = agent.federation_revision
      await this.#send(agent)
      // A crash before this line leaves a revision that is sent again: the receiver knows it by its Idempotency-Key.
      await ledger.commit({ statements: [markPushed(database, { id, revision })], entries: [] })
      this.#backOff.settled(id)
      log.info({ agent: id, revision }, 'federation: pushed')
    } catch (error) {
      if (this.#stopping.signal.aborted) return
      const { failures, delayMs } = this.#backOff.failed(id, revision, clock())
      const seen = { err: error, agent: id, revision, failures, retry_in_ms: delayMs }
      log.warn(seen, 'federation: not pushed, will be tried again')
    }
  }

  async #send(agent: PrincipalRecord): Promise<void> {
    const { keys, issuer, clock, timeoutMs = TIMEOUT_MS } = this.#sources
    const status = await post({
      url: this.#url,
      headers: {
        'content-type': 'application/jose',
        'idempotency-key': `${agent.principal_id}@${agent.federation_revision}`,
      },
      body: await signAgent(agent, { keys, issuer: issuer(), at: clock() }),
      timeoutMs,
      signal: this.#stopping.signal,
    })
    if (status < 200 || status > 299) throw new Error(`the receiver answered ${status}`)
  }
}
