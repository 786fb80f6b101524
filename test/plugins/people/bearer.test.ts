import { generateKeyPairSync, hash } from 'node:crypto'
import { importJWK, type JWTPayload, SignJWT } from 'jose'
import t from 'tap'
import {
  grantLookup,
  insertGrant,
  newGrantId,
  type PeopleGrant,
  removeGrants,
} from '../../../db/people/grants.ts'
import { insertPrincipal, setActive } from '../../../db/principals/write.ts'
import { NonceIssuer } from '../../../plugins/dpop/dpop.ts'
import { bearer, bearerProof } from '../../../plugins/people/bearer.ts'
import { peopleTokens } from '../../../plugins/people/token.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { opened } from '../../support/db/writer.ts'
import { athOf, proof, proofSigner } from '../../support/dpop.ts'

const URL = 'https://people.example'
const PATH = '/v1/mcp'
const AT = Date.now()
const ALICE = 'acme::user::alice'
const CLIENT = 'https://claude.ai/client.json'

const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const verifier = await importJWK(publicKey.export({ format: 'jwk' }), 'ES256')
if (verifier instanceof Uint8Array) throw new Error('a key of bytes')
const signer = proofSigner()
const nonces = new NonceIssuer(Buffer.alloc(32, 7))

const arrival = (headers: Arrival['headers'], path = PATH): Arrival =>
  // The plugins read no more of one.
  ({ id: 'req_1', at: AT, method: 'POST', path, headers, answer: {}, peer: null }) as unknown as Arrival

const grantOf = (more: Partial<PeopleGrant> = {}): PeopleGrant => ({
  ...{ id: newGrantId(), principalId: ALICE, kind: 'code', scope: null, amr: [], jkt: null, bound: 'none' },
  client: { host: 'claude.ai', idSha256: hash('sha256', CLIENT), kind: 'cimd' },
  ...{ resource: `${URL}${PATH}`, issuedAt: AT, expiresAt: AT + 60_000 },
  ...more,
})

const tokenOf = ({ id, jkt }: PeopleGrant, claims: JWTPayload = {}, header: object = {}): Promise<string> =>
  new SignJWT({
    ...{ iss: URL, aud: `${URL}${PATH}`, sub: 'usr_alice', client_id: CLIENT, scope: 'mcp', grant: id },
    ...{ iat: Math.floor(AT / 1000), exp: Math.floor(AT / 1000) + 600, jti: newGrantId() },
    ...(jkt !== null && { cnf: { jkt } }),
    ...claims,
  })
    .setProtectedHeader({ alg: 'ES256', typ: 'at+jwt', kid: 'k', ...header })
    .sign(privateKey)

const refusalOf = async (work: () => unknown): Promise<Refusal> => {
  try {
    await work()
  } catch (error) {
    if (error instanceof Refusal) return error
    throw error
  }
  throw new Error('nothing was refused')
}

const at = await opened(t)
const [plain, keyed, narrow, over] = [
  grantOf(),
  grantOf({ bound: 'key', jkt: signer.jkt }),
  grantOf({ scope: ['files.use', 'llm.chat'] }),
  grantOf({ expiresAt: AT }),
]
await at.run(
  insertPrincipal(at.db, {
    ...{
      type: 'user',
      id: ALICE,
      ref: 'usr_alice',
      name: 'alice',
      displayName: null,
      federated: false,
      at: AT,
    },
    ...{ capabilities: ['files.use'], enrollmentMethod: 'oidc', spiffeId: null, dpopJkt: null },
  }),
  ...[plain, keyed, narrow, over].map((one) => insertGrant(at.db, one)),
)
const door = {
  url: () => URL,
  tokens: peopleTokens({ issuer: () => URL, baseUrls: () => [URL], key: async () => verifier }),
}
const key = Buffer.alloc(32, 1)
const plugin = bearer({ ...door, lookup: grantLookup(at.db), keys: { known: new Map(), open: () => key } })
const proofs = bearerProof({ ...door, nonces, llm: () => 'key' })
const asBearer = async (grant: PeopleGrant, claims: JWTPayload = {}, header: object = {}) =>
  arrival({ authorization: `Bearer ${await tokenOf(grant, claims, header)}` })

t.test('a token leads to its grant and its user, as the database has them now', async (t) => {
  const caller = await plugin.admit(await asBearer(plain))
  t.match(caller.principal, { id: ALICE, ref: 'usr_alice', type: 'user', capabilities: ['files.use'] })
  t.match(caller.grant, {
    id: plain.id,
    bound: 'none',
    jkt: null,
    scope: null,
    client: { host: 'claude.ai' },
  })
  t.equal(caller.commitments.of('x', 'y').length, 64)
})

t.test('a scope of capabilities narrows, and never beyond what was granted', async (t) => {
  const scopeOf = async (grant: PeopleGrant, scope: string) =>
    (await plugin.admit(await asBearer(grant, { scope }))).grant?.scope
  t.same(await scopeOf(plain, 'mcp files.use'), ['files.use'])
  t.same(await scopeOf(narrow, 'mcp'), ['files.use', 'llm.chat'])
  t.same(await scopeOf(narrow, 'files.use admin.x'), ['files.use'])
})

t.test('without a token, one is told where to sign in, by two challenges', async (t) => {
  const refusal = await refusalOf(() => plugin.admit(arrival({})))
  t.match({ reason: refusal.reason, status: refusal.status }, { reason: 'token_required', status: 401 })
  t.equal(
    refusal.headers['www-authenticate'],
    `Bearer resource_metadata="${URL}/.well-known/oauth-protected-resource/v1/mcp", scope="mcp", DPoP algs="ES256 PS256 EdDSA Ed25519"`,
  )
})

t.test('a token that is not ours, not for this door, or not of its grant is refused as such', async (t) => {
  const now = Math.floor(AT / 1000)
  const wrong: Readonly<Record<string, () => Promise<Arrival>>> = {
    'another issuer': () => asBearer(plain, { iss: 'https://evil.example' }),
    'another audience': () => asBearer(plain, { aud: 'https://evil.example/v1/mcp' }),
    'another resource': () => asBearer(plain, { aud: `${URL}/v1/mcp/files` }),
    'another type': () => asBearer(plain, {}, { typ: 'JWT' }),
    'a time that is over': () => asBearer(plain, { exp: now - 1 }),
    'another user': () => asBearer(plain, { sub: 'usr_bob' }),
    'another client': () => asBearer(plain, { client_id: 'https://evil.example/client.json' }),
    'no grant': () => asBearer(plain, { grant: undefined }),
    'a grant that nobody has': () => asBearer(plain, { grant: 'grt_x' }),
    'a grant that has expired': () => asBearer(over),
    'a key that the grant has not': async () =>
      arrival({ authorization: `DPoP ${await tokenOf(plain, { cnf: { jkt: signer.jkt } })}` }),
    'a bound token as if it were not': () => asBearer(keyed),
    'a token without its key': () => asBearer(keyed, { cnf: undefined }),
    'an altered signature': async () => arrival({ authorization: `Bearer ${await tokenOf(plain)}x` }),
    'no algorithm': async () =>
      arrival({
        authorization: `Bearer ${Buffer.from('{"alg":"none","typ":"at+jwt"}').toString('base64url')}.e30.`,
      }),
    'another scheme': async () => arrival({ authorization: 'Basic YTpi' }),
  }
  for (const [name, made] of Object.entries(wrong)) {
    const sent = await made()
    const { reason, headers } = await refusalOf(() => plugin.admit(sent))
    t.equal(reason, 'token_invalid', name)
    t.match(headers['www-authenticate'], /^Bearer error="invalid_token", resource_metadata=/, name)
  }
})

t.test('a bound grant needs the proof of its key on each call, and of no other', async (t) => {
  const token = await tokenOf(keyed)
  const called = async (dpop?: string) => {
    const sent = arrival({ authorization: `DPoP ${token}`, ...(dpop !== undefined && { dpop }) })
    return proofs.admit({ ...sent, ...(await plugin.admit(sent)) })
  }
  const nonce = nonces.current('resource', AT)
  const claims = { htm: 'POST', htu: `${URL}${PATH}`, nonce, ath: athOf(token) }
  t.match(await called(proof(signer, claims)), {
    proof: { jkt: signer.jkt },
    token: { scope: null, bound: false },
  })
  const reasonOf = async (dpop?: string) => (await refusalOf(() => called(dpop))).reason
  t.equal(await reasonOf(), 'proof_required')
  t.equal(await reasonOf(proof(proofSigner(), claims)), 'proof_invalid', 'another key')
  t.equal(await reasonOf(proof(signer, { ...claims, ath: athOf('x') })), 'proof_invalid', 'another token')
  t.equal(await reasonOf(proof(signer, { ...claims, nonce: 'x' })), 'use_dpop_nonce')
})

t.test('an LLM call of a lower grade than the door takes is refused', async (t) => {
  const sent = await asBearer(plain)
  const facts = { ...sent, ...(await plugin.admit(sent)) }
  t.match(await proofs.admit(facts), { proof: null, token: { scope: null } }, 'another call is not')
  const demand = { action: 'egress_llm_chat', demanded: ['llm.chat'] }
  const refusal = await refusalOf(() => proofs.admit({ ...facts, demand }))
  t.match(refusal, { reason: 'proof_too_weak', status: 403, detail: { min_proof: 'key' } })
})

t.test(
  'a grant that ended, and a user who was deactivated, hold for nothing more, of no open call either',
  async (t) => {
    const sent = await asBearer(narrow)
    const facts = { ...sent, ...(await plugin.admit(sent)) }
    const still = async () => plugin.still?.({ ...facts, at: AT + 1 })
    t.match(await still(), { principal: { id: ALICE } })
    await at.run(removeGrants(at.db, [narrow.id]))
    t.equal((await refusalOf(still)).reason, 'token_invalid')
    t.equal((await refusalOf(() => plugin.admit(sent))).reason, 'token_invalid')
    const other = await asBearer(plain)
    await at.run(setActive(at.db, { type: 'user', id: ALICE, at: AT, active: false }))
    const refusal = await refusalOf(() => plugin.admit(other))
    t.equal(refusal.reason, 'principal_deactivated')
    t.match(refusal.headers['www-authenticate'], /^Bearer error="invalid_token"/)
  },
)
