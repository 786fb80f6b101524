import type { KeyObject, X509Certificate } from 'node:crypto'
import type { Extension } from 'pkijs'
import {
  createAuthority,
  type IssuingAuthority,
  loadAuthority,
  type NewAuthority,
  newKeyPair,
} from '../../../certs/authority/authority.ts'
import { authorityConstraints, buildCertificate, certSignKeyUsage } from '../../../certs/authority/builder.ts'
import { readCertificate } from '../../../certs/x509/x509.ts'

/** A Thursday. */
export const AT = Date.UTC(2026, 9, 1, 12)
export const DAY_MS = 86_400_000
export const BOT = { commonName: 'acme::bot', spiffeId: 'spiffe://sallyport.local/acme/bot' }

export interface Made extends NewAuthority {
  readonly authority: IssuingAuthority
}

export async function madeAuthority(at = AT, organisation = 'acme'): Promise<Made> {
  const parts = await createAuthority({ organisation, trustDomain: 'sallyport.local', at })
  return { ...parts, authority: await loadAuthority(parts) }
}

export interface Odd {
  readonly name?: string
  readonly extensions: readonly Extension[]
  readonly notBefore?: number
  readonly notAfter?: number
  readonly key?: { readonly publicKey: KeyObject; readonly privateKey: KeyObject }
}

export interface OddCertificate {
  readonly x509: X509Certificate
  readonly pem: string
  readonly key: KeyObject
}

/** A certificate with exactly these extensions, signed by that issuer, or by itself. */
export async function odd(plan: Odd, issuer?: OddCertificate): Promise<OddCertificate> {
  const { publicKey, privateKey } = plan.key ?? (await newKeyPair())
  const x509 = buildCertificate(
    {
      commonName: plan.name ?? 'odd',
      organisation: 'acme',
      publicKey,
      notBefore: plan.notBefore ?? AT - DAY_MS,
      notAfter: plan.notAfter ?? AT + DAY_MS,
      extensions: plan.extensions,
    },
    issuer ? { certificate: readCertificate(issuer.x509.raw), key: issuer.key } : { selfKey: privateKey },
  )
  return { x509, pem: x509.toString(), key: privateKey }
}

/** What a CA certificate carries, with room for that many CAs below it. */
export const caExtensions = (pathLength: number): Extension[] => [
  authorityConstraints(pathLength),
  certSignKeyUsage(),
]
