import type { JsonWebKey } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isFileNotFound } from '../../../certs/authority/key-store.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { dpopKeyIn } from '../signing/dpop-key.ts'
import { readPrivateSync } from './private-file.ts'

/** A client's identity, and the place of its gateway. */
export interface Identity {
  /** The gateway's base URL without a path, e.g. `https://gateway.example:9443`. */
  readonly url: string
  /** e.g. `acme::my-agent`; null if it is not known. Only shown, never sent. */
  readonly agentId: string | null
  /** The root certificate that the gateway is trusted by. PEM. */
  readonly ca: string
  /** The client certificate and its intermediate. PEM. */
  readonly cert: string
  /** The certificate's private key. PEM. */
  readonly key: string
  /** The private EC P-256 key that signs DPoP proofs. JWK. */
  readonly dpopJwk: JsonWebKey
}

/**
 * Reads an identity directory: `agent.crt`, `agent.key`, `org-ca.crt`, `gateway.json` (`{"url", "agent_id"}`)
 * and `dpop.jwk`, which is made if it is missing. `url` takes the place of the one in `gateway.json`,
 * `dpopJwk` of the proof key. Throws one sentence if a file is missing or malformed, or a key can be read by
 * others.
 */
export function readIdentity(directory: string, url?: string, dpopJwk?: JsonWebKey): Identity {
  const key = readPrivateSync(join(directory, 'agent.key'))
  if (key === null) throw new Error(`${directory} is not an identity directory: it has no agent.key`)
  const gateway = gatewayIn(directory, url)
  return {
    ...gateway,
    key,
    cert: readFileSync(join(directory, 'agent.crt'), 'utf8'),
    ca: readFileSync(join(directory, 'org-ca.crt'), 'utf8'),
    dpopJwk: dpopJwk ?? dpopKeyIn(directory),
  }
}

/**
 * Reads the place of an identity's gateway from `gateway.json`, or takes `url`. Throws one sentence if
 * neither says it.
 */
export function gatewayIn(directory: string, url?: string): Pick<Identity, 'url' | 'agentId'> {
  const path = join(directory, 'gateway.json')
  const stored = parsedIfThere(path)
  const found = url ?? stored?.url
  if (typeof found !== 'string') {
    throw new Error(
      `${path} must say where the gateway is: {"url": "https://localhost:9443", "agent_id": "…"}`,
    )
  }
  return { url: gatewayOrigin(found), agentId: typeof stored?.agent_id === 'string' ? stored.agent_id : null }
}

function parsedIfThere(path: string): UnknownRecord | null {
  try {
    const value: unknown = JSON.parse(readFileSync(path, 'utf8'))
    return isObject(value) ? value : null
  } catch (error) {
    if (isFileNotFound(error)) return null
    throw new Error(`${path} is not JSON`, { cause: error })
  }
}

/**
 * Returns the origin of a gateway's base URL. Throws one sentence if it is not https, or has a path, query or
 * user.
 */
export function gatewayOrigin(text: string): string {
  const url = URL.parse(text)
  if (url?.protocol === 'https:' && url.href === `${url.origin}/`) return url.origin
  // A user's password is not repeated.
  const got = text.includes('@') ? 'one with a user name' : text
  throw new Error(
    `the gateway's URL must be like https://gateway.example:9443, without path, query and user name, got ${got}`,
  )
}
