import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { athOf, nonceOf, type ProofSigner, proof, proofSigner, tokenFor } from '../dpop.ts'
import { byCorporateCa } from '../foreign.ts'
import { ADMIN_SECRET, type Answered, agentOf, type Identity, type TestGateway } from '../gateway.ts'
import { Browser } from '../oidc/sign-in.ts'
import type { SpoiledProvider } from '../oidc/spoiled-provider.ts'
import { onTheMachine } from '../operators.ts'

/** Somebody who has come in by one of the ways. */
export interface Entered {
  readonly kind: 'agent' | 'operator'
  /** Null: nobody in particular, by the secret. */
  readonly id: string | null
  /** True: it has a browser's session. */
  readonly session: boolean
  readonly call: (method: string, path: string, body?: unknown) => Promise<Answered>
  /** Tells whether it would be let in again; absent: each call enters again. */
  readonly enters?: () => Promise<boolean>
  /** The claims of the identity provider for it; absent: it has none there. */
  readonly subject?: string
}

export interface EntryStage {
  readonly gateway: TestGateway
  readonly provider: SpoiledProvider
}

type Way = (stage: EntryStage, name: string) => Promise<Entered>

/** The capabilities of each agent here. */
export const AGENT_HOLDS = ['llm.chat', 'mcp.tools.list', 'files.use']

interface Credentials {
  readonly who: Identity
  readonly headers: (method: string, path: string) => Promise<Readonly<Record<string, string>>>
}

const ACCEPT = { accept: 'application/json, text/event-stream' }

/** Calls on one connection, as a client does: a handshake for each call would take most of the time. */
function connected(gateway: TestGateway, who: Identity | null): Pick<TestGateway, 'call'> {
  const agent = agentOf(gateway.ca, who, true)
  return { call: (_, method, path, asked) => gateway.call(who, method, path, { agent, ...asked }) }
}

const calling = (gateway: TestGateway, { who, headers }: Credentials): Entered['call'] => {
  const { call } = connected(gateway, who)
  return async (method, path, body) =>
    call(who, method, path, {
      headers: { ...(await headers(method, path)), ...ACCEPT },
      ...(body !== undefined && { body }),
    })
}

function proving(
  gateway: TestGateway,
  who: Identity,
  signer: ProofSigner,
  token?: string,
): Credentials['headers'] {
  const nonces = { ...gateway, ...connected(gateway, who) }
  return async (method, path) => ({
    dpop: proof(signer, {
      htm: method,
      htu: gateway.url + path,
      nonce: await nonceOf(nonces, who),
      ...(token !== undefined && { ath: athOf(token) }),
    }),
    ...(token !== undefined && { authorization: `DPoP ${token}` }),
  })
}

const agent = async (gateway: TestGateway, name: string): Promise<Identity> => {
  const made = await onTheMachine(gateway)('POST', '/v1/admin/agents', {
    agent_name: name,
    capabilities: AGENT_HOLDS,
  })
  return { id: made.json.agent_id, cert: made.json.cert_chain_pem, key: made.json.private_key_pem }
}

async function operator(gateway: TestGateway, name: string): Promise<Identity> {
  const ask = onTheMachine(gateway)
  const body = { operator_name: name, capabilities: ADMIN_CAPABILITIES }
  const { principal_id: id } = (await ask('POST', '/v1/admin/operators', body)).json
  const { json } = await ask('POST', `/v1/admin/operators/${id}/rotate-cert`, {})
  return { id, cert: json.cert_chain_pem, key: json.private_key_pem }
}

const register = (gateway: TestGateway, kind: Entered['kind'], { id }: Identity, { jwk }: ProofSigner) =>
  onTheMachine(gateway)('POST', `/v1/admin/${kind}s/${id}/dpop-jwk`, jwk)

const NOTHING = () => Promise.resolve({})

const byMeans =
  (
    kind: Entered['kind'],
    means: (gateway: TestGateway, who: Identity) => Promise<Credentials['headers']>,
  ): Way =>
  async ({ gateway }, name) => {
    const who = await (kind === 'agent' ? agent : operator)(gateway, name)
    const headers = await means(gateway, who)
    return { kind, id: who.id, session: false, call: calling(gateway, { who, headers }) }
  }

const byProof =
  (kind: Entered['kind']) =>
  async (gateway: TestGateway, who: Identity): Promise<Credentials['headers']> => {
    const signer = proofSigner()
    await register(gateway, kind, who, signer)
    return proving(gateway, who, signer)
  }

/** A certificate with a registered key, and calls without a proof by it: as long as the mode lets them. */
const byNoProof =
  (kind: Entered['kind']) =>
  async (gateway: TestGateway, who: Identity): Promise<Credentials['headers']> => {
    await register(gateway, kind, who, proofSigner())
    return NOTHING
  }

const bearer = async (gateway: TestGateway, who: Identity): Promise<Credentials['headers']> => {
  const { json } = await tokenFor(gateway, who, null)
  return () => Promise.resolve({ authorization: `Bearer ${json.access_token}` })
}

const boundToken = async (gateway: TestGateway, who: Identity): Promise<Credentials['headers']> => {
  const signer = proofSigner()
  const { json } = await tokenFor(gateway, who, signer)
  return proving(gateway, who, signer, json.access_token)
}

const byApiKey: Way = async ({ gateway }, name) => {
  const { caPem, certPem, keyPem } = await byCorporateCa(name)
  const ask = onTheMachine(gateway)
  await ask('POST', '/v1/admin/ca/attach', { ca_pem: caPem, kind: 'organisation' })
  const { json } = await ask('POST', '/v1/admin/agents/enroll/byoca', {
    agent_name: name,
    capabilities: AGENT_HOLDS,
    cert_pem: certPem,
    private_key_pem: keyPem,
  })
  const who = { id: json.agent_id, cert: certPem, key: keyPem }
  const headers = () => Promise.resolve({ 'x-api-key': json.api_key })
  return { kind: 'agent', id: who.id, session: false, call: calling(gateway, { who, headers }) }
}

const bySecret: Way = async ({ gateway }) => {
  const { call } = connected(gateway, null)
  const headers = { 'x-admin-secret': ADMIN_SECRET }
  return {
    ...{ kind: 'operator', id: null, session: false },
    call: (method, path, body) => call(null, method, path, { headers, ...(body !== undefined && { body }) }),
  }
}

/** Calls as a browser with this cookie does: changes go with the session's token. */
function browsing(own: TestGateway, who: Identity | null, cookie: string): Entered['call'] {
  const gateway = connected(own, who)
  let csrf = ''
  return async (method, path, body) => {
    const headers = { cookie }
    if (csrf === '')
      csrf =
        /name="csrf" value="([^"]+)"/.exec(
          (await gateway.call(who, 'GET', '/proxy/settings', { headers })).text,
        )?.[1] ?? ''
    const isForm = path.startsWith('/proxy') && method === 'POST'
    return gateway.call(who, method, path, {
      headers: {
        ...headers,
        ...(method !== 'GET' && { 'x-csrf-token': csrf }),
        ...(isForm && { 'content-type': 'application/x-www-form-urlencoded' }),
      },
      ...(isForm ? { body: new URLSearchParams({ csrf }).toString() } : body !== undefined && { body }),
    })
  }
}

const cookieIn = ({ headers }: Pick<Answered, 'headers'>): string | null => {
  const lines = [headers['set-cookie'] ?? []].flat()
  return lines.find((line) => line.startsWith('__Host-sallyport='))?.split(';')[0] ?? null
}

/** Signs in with a form. */
const bySigningIn = async (
  gateway: TestGateway,
  kind: Pick<Entered, 'id'>,
  who: Identity | null,
  sign: () => Promise<Answered>,
): Promise<Entered> => {
  const answered = await sign()
  const cookie = cookieIn(answered)
  if (cookie === null) throw new Error(`${answered.status} ${answered.text}`)
  return {
    ...kind,
    kind: 'operator',
    session: true,
    call: browsing(gateway, who, cookie),
    enters: async () => cookieIn(await sign()) !== null,
  }
}

const FORM = { 'content-type': 'application/x-www-form-urlencoded' }

const sessionBySecret: Way = ({ gateway }) =>
  bySigningIn(gateway, { id: null }, null, () =>
    gateway.call(null, 'POST', '/proxy/sign-in', {
      headers: FORM,
      body: new URLSearchParams({ secret: ADMIN_SECRET }).toString(),
    }),
  )

const sessionByCertificate =
  (means: (gateway: TestGateway, who: Identity) => Promise<unknown>): Way =>
  async ({ gateway }, name) => {
    const who = await operator(gateway, name)
    await means(gateway, who)
    const path = '/proxy/sign-in/certificate'
    return bySigningIn(gateway, who, who, () => gateway.call(who, 'POST', path, { headers: FORM, body: '' }))
  }

const sessionByProvider: Way = async ({ gateway, provider }, name) => {
  const subject = `subject of ${name}`
  const sign = async (): Promise<Answered> => {
    const person = { email: `${name}@example.com`, email_verified: true, amr: ['pwd'], groups: ['staff'] }
    provider.person = { sub: subject, ...person }
    return new Browser(gateway).signIn(name)
  }
  const id = `acme::operator::${name}-example.com`
  return { ...(await bySigningIn(gateway, { id }, null, sign)), subject }
}

/** The ways in. Each of them makes somebody new of that name. */
export const WAYS: Readonly<Record<string, Way>> = {
  'an agent’s certificate': byMeans('agent', () => Promise.resolve(NOTHING)),
  'an agent’s proof': byMeans('agent', byProof('agent')),
  'an agent’s certificate without the proof that it could make': byMeans('agent', byNoProof('agent')),
  'an agent’s token': byMeans('agent', bearer),
  'an agent’s token by a key': byMeans('agent', boundToken),
  'an API key': byApiKey,
  'an operator’s certificate': byMeans('operator', () => Promise.resolve(NOTHING)),
  'an operator’s proof': byMeans('operator', byProof('operator')),
  'an operator’s token': byMeans('operator', bearer),
  'the secret': bySecret,
  'a session by the secret': sessionBySecret,
  'a session by certificate': sessionByCertificate(() => Promise.resolve()),
  'a session by certificate, without the proof that it could make': sessionByCertificate(
    byNoProof('operator'),
  ),
  'a session by the identity provider': sessionByProvider,
}
