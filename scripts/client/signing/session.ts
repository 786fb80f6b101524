import { hash } from 'node:crypto'
import { Agent, type Dispatcher } from 'undici'
import type { Identity } from '../identity.ts'
import { keepNonces } from './nonces.ts'
import { proofSigner } from './proof.ts'
import { type CallSigner, signedDispatch } from './signed-call.ts'
import { keepToken } from './token.ts'

export interface SessionOptions {
  /**
   * Capabilities to narrow the access token to, separated by spaces. Default: all that the principal holds.
   */
  readonly scope?: string
  /** The clock that tokens and proofs go by. ms since the epoch. Default: `Date.now`. */
  readonly now?: () => number
}

/**
 * One principal's session with its gateway: connections, token and nonces, shared by all calls of this
 * process.
 */
export interface Session {
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

const sessions = new Map<string, Session>()

/**
 * Returns the session of an identity: the same one for the same identity and scope, unless it has a clock of
 * its own.
 */
export function sessionOf(identity: Identity, options: SessionOptions = {}): Session {
  if (options.now) return openSession(identity, options)
  const name = hash('sha256', JSON.stringify([identity, options.scope ?? null]))
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

function openSession({ url: origin, ca, cert, key, dpopJwk }: Identity, options: SessionOptions): Session {
  const { scope, now = Date.now } = options
  const agent = new Agent({
    // Set explicitly, so that no environment variable switches the check off.
    connect: { ca, cert, key, rejectUnauthorized: true },
    allowH2: false,
    headersTimeout: FIRST_BYTE_TIMEOUT_MS,
    bodyTimeout: 0,
  })
  const sign = proofSigner(dpopJwk)
  const nonces = keepNonces()
  const tokens = keepToken({ origin, agent, sign, nonces, scope, now })
  const signer: CallSigner = {
    origin,
    sign: async (method, path) => {
      const accessToken = await tokens.current()
      const url = origin + path.replace(/[?#].*$/s, '')
      const proof = sign({ method, url, accessToken, nonce: nonces.get('resource'), at: now() })
      return { accessToken, headers: { authorization: `DPoP ${accessToken}`, dpop: proof } }
    },
    learn: (headers) => nonces.learn('resource', headers),
    spoil: tokens.spoil,
  }
  return { origin, dispatcher: agent.compose(signedDispatch(signer)), close: () => agent.destroy() }
}
