import { createHash, generateKeyPairSync, type KeyObject, randomUUID, sign } from 'node:crypto'
import { type Answered, type Asked, CHAT, type Identity, type TestGateway } from './gateway.ts'

/** A DPoP key of a test client. */
export interface ProofSigner {
  readonly privateKey: KeyObject
  readonly jwk: Readonly<Record<string, unknown>>
  readonly jkt: string
}

export function proofSigner(): ProofSigner {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const { kty, crv, x, y } = publicKey.export({ format: 'jwk' })
  const jwk = { kty, crv, x, y }
  const jkt = createHash('sha256').update(JSON.stringify({ crv, kty, x, y })).digest('base64url')
  return { privateKey, jwk, jkt }
}

type Members = Record<string, unknown>

/**
 * A proof; what is given in `header` and `claims` replaces what a correct one has, and undefined leaves it
 * out.
 */
export function proof(signer: ProofSigner, claims: Members, header: Members = {}): string {
  const head = { typ: 'dpop+jwt', alg: 'ES256', jwk: signer.jwk, ...header }
  const body = { jti: randomUUID(), iat: Math.floor(Date.now() / 1000), ...claims }
  const signed = `${part(head)}.${part(body)}`
  const signature = sign('sha256', Buffer.from(signed), { key: signer.privateKey, dsaEncoding: 'ieee-p1363' })
  return `${signed}.${signature.toString('base64url')}`
}

const part = (members: Members): string => Buffer.from(JSON.stringify(members)).toString('base64url')

export const athOf = (token: string): string => createHash('sha256').update(token).digest('base64url')

/** The nonce that a door of the gateway hands out now. */
export async function nonceOf(gateway: TestGateway, who: Identity, path = '/v1/models'): Promise<string> {
  const { headers } = await gateway.call(who, path === '/v1/models' ? 'GET' : 'POST', path, {
    headers: {
      dpop: 'x',
      ...(path !== '/v1/models' && { 'content-type': 'application/x-www-form-urlencoded' }),
    },
    ...(path !== '/v1/models' && { body: 'grant_type=client_credentials' }),
  })
  return String(headers['dpop-nonce'])
}

/** Asks for a token; with a signer, one that is bound to its key too. */
export async function tokenFor(
  gateway: TestGateway,
  who: Identity,
  signer: ProofSigner | null,
  parameters: Record<string, string> = {},
): Promise<Answered> {
  const headers: Record<string, string> = { 'content-type': 'application/x-www-form-urlencoded' }
  if (signer) {
    const nonce = await nonceOf(gateway, who, '/v1/auth/token')
    headers.dpop = proof(signer, { htm: 'POST', htu: `${gateway.url}/v1/auth/token`, nonce })
  }
  const body = new URLSearchParams({ grant_type: 'client_credentials', ...parameters }).toString()
  return gateway.call(who, 'POST', '/v1/auth/token', { headers, body })
}

/** A chat call with a proof, and a token where there is one. `claims` and `header` spoil the proof. */
export async function provenChat(
  gateway: TestGateway,
  who: Identity | null,
  signer: ProofSigner,
  { token, claims = {}, header = {}, nonce, path = '/v1/chat/completions', ...asked }: ProvenCall = {},
): Promise<Answered> {
  const correct = {
    htm: 'POST',
    htu: gateway.url + path,
    nonce,
    ...(token !== undefined && { ath: athOf(token) }),
  }
  const headers = {
    dpop: proof(signer, { ...correct, ...claims }, header),
    ...(token !== undefined && { authorization: `DPoP ${token}` }),
    ...asked.headers,
  }
  return gateway.call(who, 'POST', path, { body: CHAT, ...asked, headers })
}

interface ProvenCall extends Asked {
  readonly token?: string
  readonly claims?: Members
  readonly header?: Members
  readonly nonce?: string
  readonly path?: string
}
