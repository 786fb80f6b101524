import { Agent } from 'node:https'
import fc from 'fast-check'
import { athOf, type ProofSigner, proof, proofSigner } from '../dpop.ts'
import type { Answered, Identity, TestGateway } from '../gateway.ts'
import { HELD } from './authority.ts'
import { type Call, REQUESTS } from './calls.ts'

/** A principal as it is drawn. */
export interface Drawn {
  readonly plural: 'agents' | 'users' | 'workloads'
  /** The keys that are registered: its own, the other one before it, whose time is not over, or none. */
  readonly keys: 'none' | 'own' | 'both'
  /** Whether it goes on with a certificate in whose place there is a new one. */
  readonly renewed: boolean
  /** Its access token: none, one of its certificate alone, or one that is bound to its key. Both narrow. */
  readonly token: 'none' | 'bearer' | 'bound'
  readonly scope: readonly string[]
}

export const person: fc.Arbitrary<Drawn> = fc.record({
  plural: fc.constantFrom('agents', 'agents', 'users', 'workloads'),
  keys: fc.constantFrom('none', 'own', 'own', 'both'),
  renewed: fc.nat(5).map((one) => one === 0),
  token: fc.constantFrom('none', 'none', 'bearer', 'bound'),
  scope: fc.subarray(HELD, { minLength: 1 }),
})

/** A principal that calls. */
export interface Person extends Identity {
  /** Where it is administered. */
  readonly path: string
  readonly send: (call: Call) => Promise<Answered>
  readonly leave: () => void
}

export type Administer = (method: string, path: string, body?: unknown) => Promise<Answered>

/** Hands out the last nonce that an endpoint gave. */
interface Nonces {
  resource: string
  token: string
}

const ENROLLED: Readonly<Record<Drawn['plural'], { readonly noun: string; readonly id: string }>> = {
  agents: { noun: 'agent_name', id: 'agent_id' },
  users: { noun: 'user_name', id: 'principal_id' },
  workloads: { noun: 'workload_name', id: 'principal_id' },
}

/** Enrolls principals that hold all there is, each with one kept connection. */
export function enrolling(gateway: TestGateway, admin: Administer) {
  const nonces: Nonces = { resource: '', token: '' }
  return async (name: string, drawn: Drawn): Promise<Person> => {
    const { noun, id: member } = ENROLLED[drawn.plural]
    const path = `/v1/admin/${drawn.plural}`
    const created = await admin('POST', path, { [noun]: name, capabilities: HELD })
    const id: string = created.json[member]
    const { json } =
      drawn.plural === 'agents' ? created : await admin('POST', `${path}/${id}/rotate-cert`, {})
    const who = { id, cert: json.cert_chain_pem, key: json.private_key_pem }
    const [own, other] = [proofSigner(), proofSigner()]
    if (drawn.renewed) await admin('POST', `${path}/${id}/rotate-cert`, { grace_hours: 24 })
    const keys = { none: [], own: [own], both: [other, own] }[drawn.keys]
    for (const { jwk } of keys) await admin('POST', `${path}/${id}/dpop-jwk`, jwk)
    const agent = new Agent({ ca: gateway.ca, cert: who.cert, key: who.key, keepAlive: true, maxSockets: 1 })
    const client = new Client(gateway, who, agent, nonces, { own, other })
    await client.greet()
    const token = drawn.token === 'none' ? null : await client.tokenFor(drawn.scope, drawn.token === 'bound')
    return {
      ...who,
      path: `${path}/${id}`,
      send: (call) => client.send(call, call.token ? token : null),
      leave: () => agent.destroy(),
    }
  }
}

interface Token {
  readonly text: string
  readonly scheme: string
}

class Client {
  readonly #gateway: TestGateway
  readonly #who: Identity
  readonly #agent: Agent
  readonly #nonces: Nonces
  readonly #signers: Readonly<Record<'own' | 'other', ProofSigner>>

  constructor(
    gateway: TestGateway,
    who: Identity,
    agent: Agent,
    nonces: Nonces,
    signers: Readonly<Record<'own' | 'other', ProofSigner>>,
  ) {
    this.#gateway = gateway
    this.#who = who
    this.#agent = agent
    this.#nonces = nonces
    this.#signers = signers
  }

  /** Gets a nonce, if none is known. */
  async greet(): Promise<void> {
    if (this.#nonces.resource === '') await this.#ask('GET', '/v1/models', {}, undefined, 'resource')
  }

  async tokenFor(scope: readonly string[], bound: boolean): Promise<Token> {
    const path = '/v1/auth/token'
    const body = new URLSearchParams({ grant_type: 'client_credentials', scope: scope.join(' ') }).toString()
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    if (this.#nonces.token === '') await this.#ask('POST', path, headers, body, 'token')
    const proven = bound && { dpop: this.#proof('own', 'POST', path, { nonce: this.#nonces.token }) }
    const { json, text } = await this.#ask('POST', path, { ...headers, ...proven }, body, 'token')
    if (json?.access_token === undefined) throw new Error(`no token: ${text}`)
    return { text: json.access_token, scheme: json.token_type }
  }

  send({ what, proof: proving }: Call, token: Token | null): Promise<Answered> {
    const { path, body, headers } = { headers: {}, ...REQUESTS[what] }
    const signed = {
      nonce: this.#nonces.resource,
      ...(token && { ath: athOf(token.text) }),
      ...(proving === 'spoilt' && { htm: 'PUT' }),
    }
    const by = proving === 'other' ? 'other' : 'own'
    const proven = {
      ...(proving !== 'none' && { dpop: this.#proof(by, 'POST', path, signed) }),
      ...(token && { authorization: `${token.scheme} ${token.text}` }),
    }
    return this.#ask('POST', path, { ...headers, ...proven }, body, 'resource')
  }

  #proof(by: 'own' | 'other', method: string, path: string, claims: Record<string, unknown>): string {
    return proof(this.#signers[by], { htm: method, htu: this.#gateway.url + path, ...claims })
  }

  async #ask(
    method: string,
    path: string,
    headers: Record<string, string>,
    body: unknown,
    of: keyof Nonces,
  ): Promise<Answered> {
    const answered = await this.#gateway.call(this.#who, method, path, { headers, body, agent: this.#agent })
    const { 'dpop-nonce': nonce } = answered.headers
    if (typeof nonce === 'string') this.#nonces[of] = nonce
    return answered
  }
}
