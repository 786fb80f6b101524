import fc from 'fast-check'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import type { Json } from '../gateway.ts'

/** A request of administration. `proposal`: the place of the one that it is about, among those that are known. */
export interface Asking {
  readonly method: string
  readonly path: string
  readonly body?: Json
  readonly headers?: Record<string, string>
  readonly proposal?: number
}

/** What the requests are about: ids that are there, and some that are not yet. */
export interface Things {
  readonly agents: readonly string[]
  readonly users: readonly string[]
  readonly operators: readonly string[]
  /** Those who may lose their certificates. */
  readonly certified: readonly string[]
  /** Whether the shared secret may change. */
  readonly secret: boolean
  readonly resource: string
  /** The digest of the definition of `write` that waits. */
  readonly waiting: string
  readonly bindings: readonly string[]
  readonly csr: string
  readonly endpoint: string
}

const SETS = [[], ['llm.chat'], ['files.use'], ['files.use', 'llm.chat', 'mcp.tools.call']]
const POWERS = [[], ['admin.grant', 'admin.read'], ['admin.read'], [...ADMIN_CAPABILITIES]]
const DEMANDS = [null, 'files.use', 'llm.chat']
const KEY = {
  kty: 'EC',
  crv: 'P-256',
  x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU',
  y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0',
}

const of = fc.constantFrom
const post = (path: string, body: Json = {}): Asking => ({ method: 'POST', path, body })

/** What an operator may think of to bring about what takes two. */
export function askings(things: Things): fc.Arbitrary<Asking> {
  const { agents, users, operators, resource, bindings, endpoint } = things
  const sets = of(...SETS)
  const powers = of(...POWERS)
  const people = [...agents.map((id) => `agents/${id}`), ...users.map((id) => `users/${id}`)]
  const held = fc
    .tuple(of(...people), sets, of('PATCH', 'PATCH', 'PUT', 'POST'))
    .map(([who, capabilities, method]) => ({
      method,
      path: `/v1/admin/${who}/capabilities`,
      body: { capabilities },
    }))
  const power = fc.tuple(of(...operators), powers).map(([id, capabilities]) => ({
    method: 'PATCH',
    path: `/v1/admin/operators/${id}/capabilities`,
    body: { capabilities },
  }))
  const created = fc.oneof(
    fc
      .tuple(of('x', 'y'), sets)
      .map(([name, capabilities]) => post('/v1/admin/agents', { agent_name: name, capabilities })),
    fc
      .tuple(of('x', 'y'), sets)
      .map(([name, capabilities]) => post('/v1/admin/users', { user_name: name, capabilities })),
    fc
      .tuple(of('sock', 'bob', 'mallory'), powers)
      .map(([name, capabilities]) => post('/v1/admin/operators', { operator_name: name, capabilities })),
    of('byoca', 'spiffe').map((how) => {
      const body = { agent_name: 'z', capabilities: ['llm.chat'] }
      const pem =
        how === 'byoca' ? { cert_pem: '-', private_key_pem: '-' } : { svid_pem: '-', svid_key_pem: '-' }
      return post(`/v1/admin/agents/enroll/${how}`, { ...body, ...pem })
    }),
  )
  const served = fc
    .tuple(of(...people, ...operators.map((id) => `operators/${id}`)), of('DELETE', 'reactivate', 'erase'))
    .map(([who, how]) =>
      how === 'DELETE' ? { method: 'DELETE', path: `/v1/admin/${who}` } : post(`/v1/admin/${who}/${how}`),
    )
  const certified = fc
    .tuple(
      of(...things.certified),
      of<readonly [string, Json]>(
        ['rotate-cert', {}],
        ['certificate', { csr_pem: things.csr }],
        ['dpop-jwk', KEY],
      ),
    )
    .map(([id, [how, body]]) => post(`/v1/admin/operators/${id}/${how}`, body))
  const server = `/v1/admin/mcp-resources/${resource}`
  const tended = fc.oneof(
    fc
      .record(
        {
          required_capability: of(...DEMANDS),
          tool_capabilities: of<Json>(null, {}, { read: 'llm.chat' }, { write: 'files.use' }),
          enabled: fc.boolean(),
          endpoint_url: of(endpoint, `${endpoint}?elsewhere`),
        },
        { requiredKeys: [] },
      )
      .map((body): Asking => ({ method: 'PATCH', path: server, body })),
    of<Asking>(
      { method: 'DELETE', path: server },
      post('/v1/admin/mcp-resources', { name: 'again', endpoint_url: endpoint }),
      post(`${server}/refresh`),
      post(`${server}/tools/write/approve`, { digest: things.waiting }),
    ),
  )
  const bound = fc.oneof(
    of(...agents, ...users).map((id) =>
      post('/v1/admin/mcp-resources/bindings', { agent_id: id, resource_id: resource }),
    ),
    of(...bindings).map((id) => ({ method: 'DELETE', path: `/v1/admin/mcp-resources/bindings/${id}` })),
  )
  const keys = of<Asking>(
    post('/v1/admin/signing-key/rotate'),
    ...(things.secret
      ? [
          post('/v1/admin/secret/rotate', { new_secret: 'a-secret-of-her-own' }),
          post('/v1/admin/secret/disable'),
          post('/v1/admin/secret/enable'),
        ]
      : []),
  )
  const conditions = of<Record<string, string>>({}, {}, {}, { 'if-match': '*' }, { 'if-match': '"1"' })
  const direct = fc
    .tuple(fc.oneof(held, held, power, created, served, certified, tended, tended, bound, keys), conditions)
    .map(([asking, headers]): Asking => ({ ...asking, headers }))
  return fc.oneof({ arbitrary: direct, weight: 3 }, { arbitrary: deciding, weight: 1 })
}

/** About one of the proposals that are known. */
export const deciding: fc.Arbitrary<Asking> = fc
  .tuple(fc.nat(50), of('confirm', 'confirm', 'confirm', 'decline'))
  .map(([proposal, verb]) => ({ ...post(`/${verb}`), proposal }))
