import { Agent, request } from 'undici'
import { keepNonces, proofSigner } from '../../../scripts/client/signing/proof.ts'
import { keepToken } from '../../../scripts/client/signing/token.ts'
import type { ProvenIdentity } from '../ground/ground.ts'
import type { Signing } from '../job.ts'
import { PATH, requestBody } from './messages.ts'

export interface SignInOptions {
  /** The path that proofs are to be for. */
  readonly path: string
  readonly token: boolean
}

/**
 * Gets an agent everything that it needs before it can sign: the gateway's nonce, as its answers hand it out,
 * and, where `token`, an access token that is bound to certificate and key. Throws where the gateway gives
 * either not.
 */
export async function signIn(
  identity: ProvenIdentity,
  port: number,
  { path, token }: SignInOptions,
): Promise<Signing> {
  const { ca, cert, key, dpopKey: jwk } = identity
  const origin = `https://localhost:${port}`
  const agent = new Agent({ connect: { ca, cert, key } })
  try {
    const nonces = keepNonces(Date.now)
    const { headers, body } = await request(origin + PATH, {
      method: 'POST',
      dispatcher: agent,
      headers: { 'content-type': 'application/json' },
      body: requestBody('json'),
    })
    await body.dump()
    if (!nonces.learn('resource', headers)) throw new Error('the gateway gave no DPoP-Nonce')
    const source = { origin, agent, sign: proofSigner(jwk), nonces, scope: undefined, now: Date.now }
    const accessToken = token ? (await keepToken(source).current()).value : null
    return { jwk, method: 'POST', url: origin + path, accessToken, nonce: nonces.get('resource') }
  } finally {
    await agent.close()
  }
}
