import { hash } from 'node:crypto'
import { resolve } from 'node:path'
import { Agent, type Dispatcher } from 'undici'
import type { Identity } from '../identity/identity.ts'
import { type CurrentIdentity, watchIdentity } from '../identity/watched.ts'
import { keepNonces, type NonceStore, type ProofSigner, proofSigner } from './proof.ts'
import { isBroken, pacedConnector, ReconnectPace } from './reconnect.ts'
import { type CallSigner, SignedDispatcher } from './signed-call.ts'
import { keepToken, type TokenCache } from './token.ts'

export interface SessionOptions {
  /**
   * Capabilities to narrow the access token to, separated by spaces. Default: all that the principal holds.
   */
  readonly scope?: string
  /** The clock that tokens and proofs go by. ms since the epoch. Default: `Date.now`. */
  readonly now?: () => number
  /** The directory that the identity was read from: replaced files are used from the next call on. */
  readonly directory?: string
  /** Called with each event in `directory`, in a sentence. Default: nobody. */
  readonly notice?: (sentence: string) => void
}

/**
 * One principal's session with its gateway: connections, token and nonces, shared by all calls of this
 * process.
 */
export interface ClientSession {
  readonly origin: string
  /**
   * An undici dispatcher for the gateway's origin alone: mutual TLS, access token and a fresh proof for each
   * attempt.
   */
  readonly dispatcher: Dispatcher
  /** Ends all connections, also those in use. */
  readonly close: () => Promise<void>
}

// A provider may think for many minutes before its first byte; after it a stream may be silent for as long as
// it likes.
const FIRST_BYTE_TIMEOUT_MS = 15 * 60_000

const sessions = new Map<string, ClientSession>()

/**
 * Returns the session of an identity: the same one for the same identity (or directory) and scope, unless it
 * has a clock of its own.
 */
export function clientSession(identity: Identity, options: SessionOptions = {}): ClientSession {
  if (options.now) return openSession(identity, options)
  const { directory, scope = null } = options
  const whose = directory === undefined ? identity : [identity.url, resolve(directory)]
  const name = hash('sha256', JSON.stringify([whose, scope]))
  const known = sessions.get(name)
  if (known) return known
  const opened = openSession(identity, options)
  const close = async (): Promise<void> => {
    sessions.delete(name)
    await opened.close()
  }
  const session = { ...opened, close }
  sessions.set(name, session)
  return session
}

function openSession(identity: Identity, options: SessionOptions): ClientSession {
  const { scope, directory, now = Date.now, notice = () => {} } = options
  const origin = identity.url
  const nonces = keepNonces(now)
  const source =
    directory === undefined ? fixedIdentity(identity) : watchIdentity(identity, { directory, now, notice })
  const open = new Set<Agent>()
  const pace = new ReconnectPace()
  const boundTo = (to: Identity): BoundConnections =>
    new BoundConnections(to, { scope, now, nonces, open, pace })
  let bound = boundTo(identity)
  const entered = async (): Promise<BoundConnections> => {
    await source.refresh()
    const latest = source.current()
    if (latest !== bound.identity) {
      bound.retire()
      bound = boundTo(latest)
    }
    return bound.enter()
  }
  const signer: CallSigner = {
    origin,
    sign: async (method, path) => {
      const { agent, tokens, sign, leave } = await entered()
      try {
        const { value: accessToken, vendorKeys } = await tokens.current()
        const url = origin + path.replace(/[?#].*$/s, '')
        const ahead = nonces.ahead()
        const nonce = nonces.get('resource')
        const proof = sign({ method, url, accessToken, nonce, at: now() + ahead })
        return {
          headers: { authorization: `DPoP ${accessToken}`, dpop: proof },
          vendorKeys: vendorKeys && isProviderCall(method, path),
          clockMoved: () => nonces.ahead() !== ahead,
          dispatch: (wanted, handler) => agent.dispatch(wanted, handler),
          discardToken: () => {
            tokens.discard(accessToken)
            source.invalidate()
          },
          failed: (error) => {
            if (isBroken(error)) pace.broke()
          },
          release: leave,
        }
      } catch (error) {
        source.invalidate()
        leave()
        throw error
      }
    },
    learn: (headers) => nonces.learn('resource', headers),
  }
  const close = async (): Promise<void> => {
    await Promise.all([...open].map((agent) => agent.destroy()))
  }
  return { origin, dispatcher: new SignedDispatcher(signer), close }
}

/** Tells if a call goes on to a provider: no other gets the caller's vendor key. */
const isProviderCall = (method: string, path: string): boolean =>
  method === 'POST' &&
  /^\/v1\/(?:v1\/)?(?:chat\/completions|llm\/chat|completions|embeddings|messages|responses)(?:[/?#]|$)/.test(
    path,
  )

const fixedIdentity = (identity: Identity): CurrentIdentity => ({
  current: () => identity,
  refresh: () => Promise.resolve(),
  invalidate: () => {},
})

interface BoundConnectionOptions {
  readonly scope: string | undefined
  readonly now: () => number
  readonly nonces: NonceStore
  readonly pace: ReconnectPace
  /** The connections that have not been closed. Each is added here, and taken out when it has ended. */
  readonly open: Set<Agent>
}

/** The things bound to one certificate and one proof key: connections, the access token, the signer. */
class BoundConnections {
  readonly identity: Identity
  readonly agent: Agent
  readonly tokens: TokenCache
  readonly sign: ProofSigner
  readonly #open: Set<Agent>
  #signing = 0
  #retired = false

  constructor(identity: Identity, { scope, now, nonces, open, pace }: BoundConnectionOptions) {
    const { url: origin, ca, cert, key, dpopJwk } = identity
    this.identity = identity
    this.agent = new Agent({
      // Set explicitly, so that no environment variable switches the check off.
      connect: pacedConnector(pace, { ca, cert, key, rejectUnauthorized: true, allowH2: false }),
      allowH2: false,
      headersTimeout: FIRST_BYTE_TIMEOUT_MS,
      bodyTimeout: 0,
    })
    this.sign = proofSigner(dpopJwk)
    this.tokens = keepToken({ origin, agent: this.agent, sign: this.sign, nonces, scope, now })
    this.#open = open
    open.add(this.agent)
  }

  /** Says that an attempt is about to be sent over these connections, which stay open until `leave`. */
  enter(): this {
    this.#signing += 1
    return this
  }

  readonly leave = (): void => {
    this.#signing -= 1
    this.#closeUnused()
  }

  /** Takes no more calls. Those at work come to their end. */
  retire(): void {
    this.#retired = true
    this.#closeUnused()
  }

  #closeUnused(): void {
    if (!this.#retired || this.#signing > 0) return
    // It waits for dispatched calls. That it was destroyed meanwhile is the end that was wanted.
    const ended = (): unknown => this.#open.delete(this.agent)
    this.agent.close().then(ended, ended)
  }
}
