import type { JsonWebKey } from 'node:crypto'
import type { Dispatcher } from 'undici'
import type { UnknownRecord } from '../../db/support/json.ts'
import { askGateway, gatewayAgent } from './gateway-request.ts'
import { draftIdentity } from './identity/files.ts'
import { gatewayOrigin, type Identity } from './identity/identity.ts'
import { gatewayRefusal, jsonMembers } from './refusal.ts'
import { newDpopKey, publicDpopJwk } from './signing/dpop-key.ts'

/** The agent to enroll, its gateway, and the place of its identity. */
export interface EnrollOptions {
  /** e.g. `https://gateway.example:9443`. */
  readonly gatewayUrl: string
  readonly adminSecret: string
  /** The root certificate of the organisation, which proves the gateway. PEM. */
  readonly ca: string
  /** `^[a-zA-Z0-9._-]{1,64}$`, and not `.` or `..` */
  readonly name: string
  readonly capabilities?: readonly string[]
  readonly displayName?: string
  readonly federated?: boolean
  /** The directory that the identity is written to. Must be empty, or not there yet. */
  readonly directory: string
}

/** A certificate of the organisation's own CA. */
export interface ByocaOptions extends EnrollOptions {
  /** The leaf, and the intermediates up to the attached CA. PEM. */
  readonly certPem: string
  readonly privateKeyPem: string
}

/** A certificate that a SPIFFE workload API gave out. */
export interface SpiffeOptions extends EnrollOptions {
  readonly svidPem: string
  readonly svidKeyPem: string
  /** Default: the bundle that the gateway is configured with. */
  readonly trustBundlePem?: string
}

/** An enrolled agent. */
export interface Enrolled {
  readonly agentId: string
  readonly directory: string
  readonly capabilities: readonly string[]
  /** Shown this once; null if the gateway gave none. */
  readonly apiKey: string | null
}

const TIMEOUT_MS = 60_000

/**
 * Enrolls an agent with a certificate of the organisation's own CA (docs/protocol.md#enrollment) and writes
 * its identity directory, with a new DPoP key registered. Throws `GatewayRefusal` (`status`, `reason`) if the
 * gateway refuses: nothing is left then.
 */
export function enrollByoca(options: ByocaOptions): Promise<Enrolled> {
  const { certPem: cert, privateKeyPem: key } = options
  const own = { cert_pem: cert, private_key_pem: key }
  return enrollAt('/v1/admin/agents/enroll/byoca', options, own, { cert, key })
}

/** Enrolls an agent with a SPIFFE SVID; otherwise as {@link enrollByoca}. */
export function enrollSpiffe(options: SpiffeOptions): Promise<Enrolled> {
  const { svidPem: cert, svidKeyPem: key, trustBundlePem: bundle } = options
  const own = { svid_pem: cert, svid_key_pem: key, ...(bundle !== undefined && { trust_bundle_pem: bundle }) }
  return enrollAt('/v1/admin/agents/enroll/spiffe', options, own, { cert, key })
}

/**
 * Enrolls an agent with a certificate that the gateway makes; otherwise as {@link enrollByoca}. If its DPoP
 * key cannot be registered the new agent is deactivated again, for nobody would hold its key.
 */
export function mint(options: EnrollOptions): Promise<Enrolled> {
  return enrollWithDraft(options, async (call, dpopJwk) => {
    const answer = await call('POST', '/v1/admin/agents', bodyOf(options))
    const path = `/v1/admin/agents/${encodeURIComponent(String(answer.agent_id))}`
    try {
      await call('POST', `${path}/dpop-jwk`, publicDpopJwk(dpopJwk))
    } catch (error) {
      // Best effort: the caller must hear why the key was refused.
      await call('DELETE', path).catch(() => undefined)
      throw error
    }
    return { answer, cert: String(answer.cert_chain_pem), key: String(answer.private_key_pem) }
  })
}

function enrollAt(
  path: string,
  options: EnrollOptions,
  own: UnknownRecord,
  pair: { readonly cert: string; readonly key: string },
): Promise<Enrolled> {
  return enrollWithDraft(options, async (call, dpopJwk) => {
    const body = { ...bodyOf(options), ...own, dpop_jwk: publicDpopJwk(dpopJwk) }
    return { answer: await call('POST', path, body), ...pair }
  })
}

function bodyOf({ name, capabilities = [], displayName, federated }: EnrollOptions): UnknownRecord {
  return {
    agent_name: name,
    capabilities,
    ...(displayName !== undefined && { display_name: displayName }),
    ...(federated !== undefined && { federated }),
  }
}

interface EnrollmentAnswer {
  readonly answer: UnknownRecord
  readonly cert: string
  readonly key: string
}

type EnrollmentCall = (
  method: 'POST' | 'DELETE',
  path: string,
  body?: UnknownRecord | JsonWebKey,
) => Promise<UnknownRecord>

async function enrollWithDraft(
  options: EnrollOptions,
  enroll: (call: EnrollmentCall, dpopJwk: JsonWebKey) => Promise<EnrollmentAnswer>,
): Promise<Enrolled> {
  const url = gatewayOrigin(options.gatewayUrl)
  const draft = await draftIdentity(options.directory)
  const dispatcher = gatewayAgent({ ca: options.ca })
  try {
    const dpopJwk = newDpopKey()
    const { answer, cert, key } = await enroll(caller(url, options.adminSecret, dispatcher), dpopJwk)
    const agentId = String(answer.agent_id)
    const identity: Identity = { url, agentId, ca: options.ca, cert, key, dpopJwk }
    await draft.publish(identity)
    return {
      agentId,
      directory: options.directory,
      capabilities: Array.isArray(answer.capabilities) ? answer.capabilities.map(String) : [],
      apiKey: typeof answer.api_key === 'string' ? answer.api_key : null,
    }
  } catch (error) {
    await draft.discard()
    throw error
  } finally {
    await dispatcher.destroy()
  }
}

function caller(url: string, secret: string, dispatcher: Dispatcher): EnrollmentCall {
  const headers = { 'x-admin-secret': secret }
  return async (method, path, body) => {
    const asked = { method, headers, body, timeoutMs: TIMEOUT_MS }
    const answer = await askGateway(dispatcher, url + path, asked)
    if (answer.status < 300) return jsonMembers(answer.text)
    throw gatewayRefusal(answer.status, answer.text, answer.headers['x-should-retry'])
  }
}
