import { randomUUID, sign as signBytes } from 'node:crypto'
import type { Test } from 'tap'
import { athOf, type ProofSigner, proof, proofSigner } from '../dpop.ts'
import {
  type Answered,
  agentOf,
  CHAT,
  type Identity,
  type TestGateway,
  type TestOptions,
  testGateway,
} from '../gateway.ts'

type Members = Record<string, unknown>

/** Where proofs are tried. */
export const DOOR = '/v1/chat/completions'

interface Sent {
  readonly headers?: Record<string, string>
  readonly path?: string
  readonly method?: string
  readonly body?: unknown
  readonly who?: Identity | null
}

/**
 * A gateway whose time stands still, one agent with `llm.chat` on one connection, and its key: where a proof
 * is spoiled in one place and everything else about it is right.
 */
export interface Bench {
  readonly gateway: TestGateway
  readonly bot: Identity
  readonly signer: ProofSigner
  /** The gateway's time. ms since the epoch. A test that moves it renews the nonce. */
  readonly time: { at: number }
  /** The resource nonce as of the last `renew`. */
  readonly nonce: () => string
  readonly renew: () => Promise<void>
  /**
   * The claims of a correct proof for `DOOR`, with what is given in their place; undefined leaves one out.
   */
  readonly claims: (over?: Members) => Members
  readonly sign: (over?: Members, header?: Members) => string
  /** A call with that DPoP header, or with none. */
  readonly send: (dpop: string | null, sent?: Sent) => Promise<Answered>
  /** An access token, bound to a key where one is given. */
  readonly token: (signer?: ProofSigner | null, parameters?: Record<string, string>) => Promise<Answered>
  /** A call to the token endpoint with that DPoP header. */
  readonly askToken: (dpop: string | null, parameters?: Record<string, string>) => Promise<Answered>
}

export async function bench(t: Test, options: TestOptions = {}): Promise<Bench> {
  const time = { at: Date.now() }
  const gateway = await testGateway(t, { clock: () => time.at, ...options })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const signer = proofSigner()
  const agent = agentOf(gateway.ca, bot, true)
  t.teardown(() => agent.destroy())
  const nonces = { resource: '', token: '' }
  const renew = async (): Promise<void> => {
    const { headers } = await gateway.call(bot, 'GET', '/v1/models', { agent })
    nonces.resource = String(headers['dpop-nonce'])
    nonces.token = String((await askToken(null)).headers['dpop-nonce'])
  }
  const claims = (over: Members = {}): Members => ({
    htm: 'POST',
    htu: gateway.url + DOOR,
    iat: Math.floor(time.at / 1000),
    jti: randomUUID(),
    nonce: nonces.resource,
    ...over,
  })
  const send: Bench['send'] = (
    dpop,
    { who = bot, path = DOOR, method = 'POST', headers, body = CHAT } = {},
  ) =>
    gateway.call(who, method, path, {
      ...(who === bot && { agent }),
      ...(method !== 'GET' && { body }),
      headers: { ...(dpop !== null && { dpop }), ...headers },
    })
  const askToken: Bench['askToken'] = (dpop, parameters = {}) =>
    send(dpop, {
      path: '/v1/auth/token',
      headers: { 'content-type': 'application/x-www-form-urlencoded' },
      body: new URLSearchParams({ grant_type: 'client_credentials', ...parameters }).toString(),
    })
  const token: Bench['token'] = (by = signer, parameters = {}) => {
    const correct = claims({ htu: `${gateway.url}/v1/auth/token`, nonce: nonces.token })
    return askToken(by && proof(by, correct), parameters)
  }
  await renew()
  return {
    gateway,
    bot,
    signer,
    time,
    nonce: () => nonces.resource,
    renew,
    claims,
    sign: (over, header) => proof(signer, claims(over), header),
    send,
    token,
    askToken,
  }
}

/** A JWS over exactly these bytes. */
export function jwsOf(header: string | Buffer, claims: string | Buffer, signer: ProofSigner): string {
  const signed = `${Buffer.from(header).toString('base64url')}.${Buffer.from(claims).toString('base64url')}`
  const key = { key: signer.privateKey, dsaEncoding: 'ieee-p1363' } as const
  return `${signed}.${signBytes('sha256', Buffer.from(signed), key).toString('base64url')}`
}

/** The headers of a call with a token, and the claim that its proof must carry. */
export const dpopToken = (token: string): { authorization: string } => ({ authorization: `DPoP ${token}` })
export const boundTo = (token: string): { ath: string } => ({ ath: athOf(token) })

const ALGS = 'algs="ES256 PS256 EdDSA Ed25519"'
const CHALLENGES = {
  proof_invalid: `DPoP error="invalid_dpop_proof", ${ALGS}`,
  use_dpop_nonce: `DPoP error="use_dpop_nonce", ${ALGS}`,
  token_invalid: `DPoP error="invalid_token", ${ALGS}`,
  proof_required: `DPoP ${ALGS}`,
} as const

/**
 * A refusal of the runtime doors as docs/protocol.md#error-body and RFC 9449 §7.1 want it: status, challenge,
 * body.
 */
export function refusedWith(
  t: Test,
  { status, headers, json }: Answered,
  reason: keyof typeof CHALLENGES,
  name: string,
): void {
  const said = {
    status,
    reason: json?.reason,
    challenge: headers['www-authenticate'],
    stored: headers['cache-control'],
  }
  const wanted = { status: 401, reason, challenge: CHALLENGES[reason], stored: 'no-store' }
  t.strictSame(said, wanted, name)
}

/** A refusal of the token endpoint (RFC 6749 §5.2). */
export function oauthError(
  t: Test,
  { status, headers, json }: Answered,
  expected: readonly [status: number, error: string],
  name: string,
): void {
  const said = { status, error: json?.error, stored: headers['cache-control'] }
  t.strictSame(said, { status: expected[0], error: expected[1], stored: 'no-store' }, name)
}

/** Every denied row, by its request id. */
export async function deniedRows(gateway: TestGateway): Promise<ReadonlyMap<string, unknown>> {
  const { text } = await gateway.admin('GET', '/v1/admin/audit/export')
  const rows = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))
  return new Map(rows.filter(({ status }) => status === 'denied').map((row) => [row.request_id, row.detail]))
}
