import type { Database } from '../../database.ts'

/** The newest rows of a caller that are looked through. */
const ROWS = 200
/** The calls that are named for each key, the newest. */
const MAX_NAMED = 5

export interface SigningKey {
  /** RFC 7638 thumbprint. base64url. */
  readonly jkt: string
  readonly calls: number
  /** RFC 3339. */
  readonly first: string
  readonly last: string
  readonly requests: readonly string[]
}

/** The keys by which a caller has signed its calls lately, and how many calls came without a proof. */
interface SignedCalls {
  readonly keys: readonly SigningKey[]
  readonly unsigned: number
}

/**
 * Finds the keys that have signed the allowed calls among a caller's newest rows. `thumbprints`: of the
 * certificates that they came by; null: any.
 */
export async function signedCalls(
  { kysely }: Database,
  ref: string,
  thumbprints: ReadonlySet<string> | null,
): Promise<SignedCalls> {
  const rows = await kysely
    .selectFrom('audit_log')
    .select(['recorded_at', 'request_id', 'status', 'cert_thumbprint', 'dpop_jkt'])
    .where('principal_id', '=', ref)
    .orderBy('recorded_at', 'desc')
    .limit(ROWS)
    .execute()
  const calls = rows.filter(
    ({ status, cert_thumbprint: thumbprint }) =>
      status === 'allowed' && (thumbprints?.has(thumbprint ?? '') ?? true),
  )
  const keys = new Map<string, SigningKey>()
  for (const { dpop_jkt: jkt, recorded_at: at, request_id: request } of calls) {
    if (jkt === null) continue
    const known = keys.get(jkt) ?? { jkt, calls: 0, last: at, requests: [] }
    const requests = request === null ? known.requests : [...known.requests, request].slice(0, MAX_NAMED)
    keys.set(jkt, { ...known, calls: known.calls + 1, first: at, requests })
  }
  return { keys: [...keys.values()], unsigned: calls.filter(({ dpop_jkt: jkt }) => jkt === null).length }
}
