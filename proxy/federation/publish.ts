import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose'
import type { Logger } from 'pino'
import type { Agent } from 'undici'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { type ChangedAgent, changedAgents, markPushed } from '../../db/principals/federation.ts'
import { findPrincipal, type PrincipalRecord } from '../../db/principals/read.ts'
import type { TokenKeys } from '../auth/token-keys.ts'
import { egressAgent } from '../egress/agent.ts'
import { type RoundsTask, rounds } from '../tasks/rounds.ts'

const FIRST_MS = 2_000
const MAX_MS = 300_000

/** Returns the wait after so many failures in a row. `random`: from 0 to 1. ms, at most five minutes. */
export function retryDelayMs(failures: number, random: number): number {
  const longest = Math.min(MAX_MS, FIRST_MS * 2 ** (failures - 1))
  // Half of it by chance: agents that failed together must not come back together.
  return Math.round((longest / 2) * (1 + random))
}

interface FailedPush {
  readonly revision: number
  readonly failures: number
  /** ms since the epoch. */
  readonly dueAt: number
}

/**
 * The agents that could not be pushed, each with its next try. In memory: a restart tries all of them at
 * once.
 */
export class BackOff {
  readonly #failed = new Map<string, FailedPush>()

  /** Tells whether that revision has failed, so that {@link due} brings it up. A newer one need not wait. */
  holds(id: string, revision: number): boolean {
    return (this.#failed.get(id)?.revision ?? 0) >= revision
  }

  /** Notes a failure. Returns the agent's wait from now on. ms. */
  failed(id: string, revision: number, at: number): { readonly failures: number; readonly delayMs: number } {
    const before = this.#failed.get(id)
    const failures = (before?.failures ?? 0) + 1
    const delayMs = retryDelayMs(failures, Math.random())
    const highest = Math.max(revision, before?.revision ?? 0)
    this.#failed.set(id, { revision: highest, failures, dueAt: at + delayMs })
    return { failures, delayMs }
  }

  settled(id: string): void {
    this.#failed.delete(id)
  }

  /** Returns the agents whose wait is over, the longest over first. */
  due(at: number): readonly string[] {
    return [...this.#failed]
      .filter(([, { dueAt }]) => dueAt <= at)
      .toSorted(([, one], [, other]) => one.dueAt - other.dueAt)
      .map(([id]) => id)
  }
}

/** The `typ` of a pushed statement: no verifier of access tokens takes it for one (RFC 8725 §3.11). */
const FEDERATION_TYP = 'sallyport-federation+jwt'

interface StatementSigning {
  readonly keys: Pick<TokenKeys, 'signer'>
  readonly issuer: string
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Signs the statement that a federation gets of an agent: a compact JWS (ES256) of the whole agent at its
 * revision. Field by field: a field that is added to the record must not leave the gateway by itself.
 */
async function signAgent(agent: PrincipalRecord, { keys, issuer, at }: StatementSigning): Promise<string> {
  const { kid, key } = await keys.signer()
  const claims = {
    agent: {
      agent_id: agent.principal_id,
      display_name: agent.display_name,
      capabilities: [...agent.capabilities],
      is_active: agent.is_active,
      spiffe_id: agent.spiffe_id,
      cert_thumbprint: agent.cert_thumbprint,
      dpop_jkt: agent.dpop_jkt,
    },
    federation_revision: agent.federation_revision,
  }
  return new SignJWT(claims)
    .setProtectedHeader({ alg: 'ES256', typ: FEDERATION_TYP, kid })
    .setIssuer(issuer)
    .setIssuedAt(Math.floor(at / 1000))
    .setJti(randomUUID())
    .sign(key)
}

/** The number of agents that are pushed at once. */
const AT_ONCE = 4
/** The number of agents that are tried again in one round after a failure: it must end, for later changes. */
const RETRIES = 8
const PAGE = 200
const TIMEOUT_MS = 5_000
/**
 * The amount of an answer's body that is read, so that the receiver sees its answer taken; it means nothing
 * to us. Bytes.
 */
const ANSWER_MAX_BYTES = 65_536

/** The least difference of two clocks that may be why a receiver refuses. Seconds. */
const CLOCK_NOTED_S = 30

/** Says how far the receiver's clock is from ours, if that may be why it refuses: it judges our `iat`. */
function clockNote(date: number | null, at: number): string {
  const difference = date === null ? 0 : Math.round((date - at) / 1000)
  if (Math.abs(difference) < CLOCK_NOTED_S) return ''
  const gap = `${Math.abs(difference)} s ${difference > 0 ? 'ahead of' : 'behind'}`
  return `; its clock is ${gap} the clock of this gateway: set one of them`
}

interface FederationDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly keys: Pick<TokenKeys, 'signer'>
  /** MCP_PROXY_FEDERATION_URL. */
  readonly url: string
  readonly issuer: () => string
  readonly clock: () => number
  readonly log: Logger
  /** The time that the receiver may take. ms. Default 5,000. */
  readonly timeoutMs?: number
}

/**
 * Pushes each changed federated agent to the federation (spec §3): at least once, one push of an agent at a
 * time, and no revision after a higher one. A revision counts as pushed when the receiver answered 2xx and
 * that is on disk. A round ends when everything that was due has been tried.
 */
export function federationTask(sources: FederationDependencies): RoundsTask {
  const { timeoutMs = TIMEOUT_MS } = sources
  // The receiver is the operator's own choice, so it may be on a private network; metadata services are refused
  // all the same.
  const limits = { connectMs: timeoutMs, answerMs: timeoutMs }
  const agent = egressAgent({ allowPrivate: true, ...limits, keepAlive: false })
  const publisher = new AgentPublisher(sources, agent)
  const task = rounds({
    name: 'publish-federation',
    everyMs: 2_000,
    // A second process could send a revision after a higher one.
    leads: () => sources.database.leads('publish-federation'),
    atOnce: AT_ONCE,
    waits: true,
    due: () => publisher.due(),
    idOf: ({ agent_id: id }) => id,
    work: (changed, signal) => publisher.push(changed, signal),
  })
  const stop = async (): Promise<void> => {
    await task.stop()
    await agent.destroy()
  }
  return { ...task, stop }
}

class AgentPublisher {
  readonly #sources: FederationDependencies
  readonly #agent: Agent
  readonly #url: URL
  readonly #backOff = new BackOff()

  constructor(sources: FederationDependencies, agent: Agent) {
    this.#sources = sources
    this.#agent = agent
    this.#url = new URL(sources.url)
  }

  // An agent that was never tried goes first: those that a receiver refuses hold up nobody else.
  async *due(): AsyncGenerator<ChangedAgent> {
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

  async push(
    { agent_id: id, federation_revision: noticed }: ChangedAgent,
    signal: AbortSignal,
  ): Promise<void> {
    const { database, ledger, clock, log } = this.#sources
    let revision = noticed
    try {
      // Read now, not when the change was noticed: the pushed object is never older than it must be.
      const agent = await findPrincipal(database, 'agent', id)
      if (!agent?.federated) return this.#backOff.settled(id)
      revision = agent.federation_revision
      await this.#send(agent, signal)
      // A crash before this line leaves a revision that is sent again: the receiver knows it by its
      // Idempotency-Key.
      await ledger.commit({ statements: [markPushed(database, { id, revision })], entries: [] })
      this.#backOff.settled(id)
      log.info({ agent: id, revision }, 'federation: pushed')
    } catch (error) {
      if (signal.aborted) return
      const { failures, delayMs } = this.#backOff.failed(id, revision, clock())
      const seen = { err: error, agent: id, revision, failures, retry_in_ms: delayMs }
      log.warn(seen, 'federation: not pushed, will be tried again')
    }
  }

  async #send(agent: PrincipalRecord, signal: AbortSignal): Promise<void> {
    const { database, keys, issuer, clock, timeoutMs = TIMEOUT_MS } = this.#sources
    const body = await signAgent(agent, { keys, issuer: issuer(), at: clock() })
    // A process may have been frozen anywhere above.
    if (!database.leads('publish-federation')) throw new Error('another process does it now')
    const late = AbortSignal.timeout(timeoutMs)
    const { status, date } = await this.#post(agent, body, AbortSignal.any([signal, late])).catch(
      (cause: unknown) => {
        if (!late.aborted || signal.aborted) throw cause
        throw new Error(`no answer within ${timeoutMs} ms`, { cause })
      },
    )
    if (status < 200 || status > 299)
      throw new Error(`the receiver answered ${status}${clockNote(date, clock())}`)
  }

  /** Posts once. Redirects are not followed: a 3xx is a status as any other. */
  async #post(agent: PrincipalRecord, body: string, signal: AbortSignal) {
    const {
      statusCode,
      headers,
      body: answer,
    } = await this.#agent.request({
      origin: this.#url.origin,
      path: this.#url.pathname + this.#url.search,
      method: 'POST',
      headers: {
        'content-type': 'application/jose',
        'idempotency-key': `${agent.principal_id}@${agent.federation_revision}`,
      },
      body,
      signal,
    })
    answer.dump({ limit: ANSWER_MAX_BYTES }).catch(() => {
      // Cut short, by them or by us: only its status matters.
    })
    // The receiver's clock (RFC 9110 §6.6.1). ms since the epoch.
    const date = Date.parse(String(headers.date))
    return { status: statusCode, date: Number.isNaN(date) ? null : date }
  }
}
