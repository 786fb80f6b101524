import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose'
import type { PrincipalRecord } from '../../db/principals/read.ts'
import type { TokenKeys } from '../auth/token-keys.ts'

/** The `typ` of a pushed statement: no verifier of access tokens takes it for one (RFC 8725 §3.11). */
export const FEDERATION_TYP = 'sallyport-federation+jwt'

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
export async function signAgent(
  agent: PrincipalRecord,
  { keys, issuer, at }: StatementSigning,
): Promise<string> {
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
