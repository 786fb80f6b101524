import { type NonceIssuer, targetUrls } from '../../plugins/dpop/dpop.ts'
import { checkProof } from '../../plugins/dpop/proof.ts'
import type { DpopProof } from '../../plugins/facts.ts'
import { requireIdentity } from '../../plugins/json-body/json-body.ts'
import { parseJsonObject } from '../../plugins/json-body/object.ts'
import type { Arrival, MemoryOwner, Plugin } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { TOKEN_LIFE_MAX_S } from './token-keys.ts'

/**
 * Checks the proof at the token endpoint (RFC 9449 §5): optional, without `ath`, by any key, which the token
 * will be bound to. Refuses with `proof_invalid` or `use_dpop_nonce`. Does NOT claim it: the handler does,
 * with the row of the token.
 */
export function tokenProof(
  nonces: NonceIssuer,
  baseUrls: () => readonly string[],
): Plugin<Arrival, { proof: DpopProof | null }> {
  const urls = targetUrls(baseUrls)
  return {
    name: 'token_proof',
    admit: ({ headers, method, path, at, answer }) => {
      answer['dpop-nonce'] = nonces.current('token', at)
      const { dpop: sent } = headers
      if (sent === undefined) return { proof: null }
      const isFresh = (nonce: string): boolean => nonces.isFresh('token', nonce, at)
      return { proof: checkProof(String(sent), { method, urls: urls(path), at, accessToken: null, isFresh }) }
    },
  }
}

/** A request to the token endpoint. Given by `token_request`. */
export interface TokenRequest {
  /**
   * The standard form of OAuth 2.0, or the Python helper's JSON (docs/protocol.md#login), which is answered a
   * little differently.
   */
  readonly form: 'oauth' | 'helper'
  readonly clientId: string | null
  /** The capabilities to narrow the token to, or null for all that is held. */
  readonly scope: readonly string[] | null
  readonly expiresInS: number
  /** RFC 8707. */
  readonly resources: readonly string[]
  /** The helper's assertion, or null. */
  readonly clientAssertion: string | null
}

const BODY_LIMIT = 64 * 1024
const MAX_RESOURCES = 8

/**
 * Reads a token request (RFC 6749 §4.4.2, RFC 8705 §2): `application/x-www-form-urlencoded` with
 * `grant_type=client_credentials`, or the helper's JSON. Refuses with `token_request_invalid`,
 * `grant_unsupported` or `scope_invalid`. Does NOT check the client, the proof or the assertion.
 */
export const tokenRequest: Plugin<Arrival & MemoryOwner, { tokenRequest: TokenRequest }> = {
  name: 'token_request',
  admit: async (facts) => {
    const { headers, readBody } = facts
    requireIdentity(headers)
    const body = await readBody(BODY_LIMIT, facts)
    const [type = ''] = (headers['content-type'] ?? '').toLowerCase().split(';')
    if (type.trim() === 'application/x-www-form-urlencoded')
      return { tokenRequest: parseFormRequest(body.toString()) }
    if (type.trim() === 'application/json') return { tokenRequest: parseHelperRequest(body) }
    throw invalid('The body must be a form: send content-type: application/x-www-form-urlencoded.')
  },
}

/** Tells whether a request to the token endpoint is in the Python helper's form. */
export const isHelperRequest = ({ headers }: Arrival): boolean =>
  (headers['content-type'] ?? '').toLowerCase().startsWith('application/json')

const invalid = (message: string): Refusal => new Refusal('token_request_invalid', { message })

function parseFormRequest(text: string): TokenRequest {
  const parameters = new URLSearchParams(text)
  const resources = parameters.getAll('resource').filter((resource) => resource !== '')
  // RFC 8707 §2: this one may be there several times.
  if (resources.length > MAX_RESOURCES)
    throw invalid(`resource was sent too often. Send it ${MAX_RESOURCES} times at most.`)
  parameters.delete('resource')
  // RFC 6749 §3.2: none more than once. The message does not name it: a description never repeats the request
  // (§5.2).
  if (new Set(parameters.keys()).size < parameters.size)
    throw invalid('A parameter was sent twice. Send each once.')
  // RFC 6749 §3.2: a parameter without a value counts as absent.
  const get = (name: string): string | null => parameters.get(name) || null
  const grant = get('grant_type')
  if (grant === null) throw invalid('grant_type is missing.')
  if (grant !== 'client_credentials') throw new Refusal('grant_unsupported')
  return {
    form: 'oauth',
    clientId: get('client_id'),
    scope: scopeOf(get('scope')),
    expiresInS: lifeOf(get('expires_in')),
    resources,
    clientAssertion: null,
  }
}

function parseHelperRequest(body: Buffer): TokenRequest {
  const assertion = parseJsonObject(body)?.client_assertion
  if (typeof assertion !== 'string') throw invalid('client_assertion is missing.')
  return {
    form: 'helper',
    clientId: null,
    scope: null,
    expiresInS: TOKEN_LIFE_MAX_S,
    resources: [],
    clientAssertion: assertion,
  }
}

// RFC 6749 §3.3: space-separated. Spaces alone ask for nothing, which nobody can mean.
function scopeOf(text: string | null): readonly string[] | null {
  if (text === null) return null
  const tokens = [...new Set(text.split(' ').filter((token) => token !== ''))]
  if (tokens.length === 0 || tokens.length > 64) throw new Refusal('scope_invalid')
  return tokens
}

function lifeOf(text: string | null): number {
  if (text === null) return TOKEN_LIFE_MAX_S
  const seconds = /^\d{1,6}$/.test(text) ? Number(text) : 0
  if (seconds < 1) throw invalid('expires_in must be a number of seconds.')
  return Math.min(seconds, TOKEN_LIFE_MAX_S)
}
