import { type Dispatcher, request } from 'undici'
import { gatewayRefusal, jsonMembers } from '../refusal.ts'
import type { NonceStore, ProofSigner } from './proof.ts'

/** The time before its end at which a token is replaced, or half its life if that is shorter. ms. */
const EARLY_MS = 30_000
/** The time that a token may take: it is made at once or not at all, and calls wait for it. ms. */
const TIMEOUT_MS = 30_000

export interface TokenSource {
  /** The gateway's origin. */
  readonly origin: string
  /** Connections with the client certificate, and nothing signed yet. */
  readonly agent: Dispatcher
  readonly sign: ProofSigner
  readonly nonces: NonceStore
  /** Capabilities to narrow the token to, separated by spaces; undefined for all that are held. */
  readonly scope: string | undefined
  readonly now: () => number
}

/** An access token, and what the gateway said with it. */
export interface CachedToken {
  readonly value: string
  /** True: some provider is called with the caller's own vendor key. */
  readonly vendorKeys: boolean
  /** The instant from which the next one is asked for. ms since the epoch. */
  readonly freshUntil: number
}

export interface TokenCache {
  /**
   * Returns a token that holds for a while yet. However many ask at once, the gateway is asked once. Rejects
   * with a `GatewayRefusal`, or with undici's error if the gateway could not be reached; nothing is kept
   * then.
   */
  readonly current: () => Promise<CachedToken>
  /**
   * Forgets a token that the gateway did not take: the next call asks for another. Has no effect on a newer
   * one.
   */
  readonly discard: (value: string) => void
}

/**
 * Keeps one access token from `POST /v1/auth/token` (client_credentials, docs/protocol.md#token-endpoint),
 * bound to the DPoP key.
 */
export function keepToken(source: TokenSource): TokenCache {
  let kept: CachedToken | null = null
  let asking: Promise<CachedToken> | null = null
  const ask = async (): Promise<CachedToken> => {
    try {
      kept = await askToken(source)
      return kept
    } finally {
      asking = null
    }
  }
  return {
    current: async () => {
      if (kept && source.now() < kept.freshUntil) return kept
      asking ??= ask()
      return asking
    },
    discard: (value) => {
      if (kept?.value === value) kept = null
    },
  }
}

async function askToken(source: TokenSource): Promise<CachedToken> {
  let answer = await post(source)
  // Once for the gateway's time, once for its nonce: a proof of the wrong time is refused before the nonce is
  // asked for.
  for (let again = 0; again < 2 && isCurable(answer); again += 1) answer = await post(source)
  if (answer.status !== 200) throw gatewayRefusal(answer.status, answer.text, answer.advice)
  return tokenOf(answer.text, source.now())
}

interface TokenAnswer {
  readonly status: number
  readonly text: string
  /** True if a nonce came with it. */
  readonly learned: boolean
  /** True if it says another time than the proof was made by. */
  readonly clockMoved: boolean
  readonly advice: unknown
}

async function post({ origin, agent, sign, nonces, scope, now }: TokenSource): Promise<TokenAnswer> {
  const url = `${origin}/v1/auth/token`
  const ahead = nonces.ahead()
  const proof = sign({
    method: 'POST',
    url,
    accessToken: null,
    nonce: nonces.get('token'),
    at: now() + ahead,
  })
  const form = new URLSearchParams({
    grant_type: 'client_credentials',
    ...(scope !== undefined && { scope }),
  })
  const { statusCode, headers, body } = await request(url, {
    method: 'POST',
    dispatcher: agent,
    headers: { 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json', dpop: proof },
    body: form.toString(),
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
  })
  const learned = nonces.learn('token', headers)
  const clockMoved = nonces.ahead() !== ahead
  return {
    status: statusCode,
    text: await body.text(),
    learned,
    clockMoved,
    advice: headers['x-should-retry'],
  }
}

// RFC 9449 §8 says 400 with the error in the body, §9 says 401 with a challenge; the body is the same here.
function isCurable({ status, text, learned, clockMoved }: TokenAnswer): boolean {
  if (status !== 400 && status !== 401) return false
  const { error, reason } = jsonMembers(text)
  if (error === 'use_dpop_nonce' || reason === 'use_dpop_nonce') return learned
  return clockMoved && (error === 'invalid_dpop_proof' || reason === 'proof_invalid')
}

function tokenOf(text: string, at: number): CachedToken {
  const { access_token: value, token_type: type, expires_in: seconds, vendor_keys } = jsonMembers(text)
  if (typeof value !== 'string' || typeof type !== 'string' || typeof seconds !== 'number') {
    throw new Error('the gateway answered the token request with something that is not a token')
  }
  // RFC 9449 §5: a client that asked for a bound token discards one that is not.
  if (type.toLowerCase() !== 'dpop') {
    throw new Error(
      `the gateway gave a ${type} token that is not bound to this key: is egress_dpop_mode off there?`,
    )
  }
  const lifeMs = seconds * 1000
  return { value, vendorKeys: vendor_keys === true, freshUntil: at + lifeMs - Math.min(EARLY_MS, lifeMs / 2) }
}
