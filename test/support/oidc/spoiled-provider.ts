import { hash, randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import {
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  type JWTHeaderParameters,
  type JWTPayload,
  SignJWT,
} from 'jose'
import type { Test } from 'tap'
import { CLIENT_ID, CLIENT_SECRET } from './provider.ts'

type Fields = Record<string, unknown>

/** What of the provider's answers is spoiled. Absent members are as they should be. */
export interface Spoiled {
  readonly discovery?: (document: Fields) => Fields
  /** Of the address that the browser is sent back to. */
  readonly callback?: (query: URLSearchParams) => void
  readonly claims?: (claims: JWTPayload) => JWTPayload
  /** Makes the ID token from what would be its claims. */
  readonly idToken?: (claims: JWTPayload) => unknown
  readonly tokens?: (answer: Fields) => Fields
  /** True: a code is taken however often, and whoever redeems it. */
  readonly careless?: boolean
  /** Answers a request by itself, whatever it is. Returns false where it does not. */
  readonly answer?: (path: string, res: ServerResponse) => boolean
}

/** A key of the provider's, as it signs and as it is published. */
export interface SigningKey {
  readonly kid: string
  readonly privateKey: CryptoKey
  readonly publicJwk: Fields
}

/** A provider made by hand, on a loopback port of its own: honest until something is spoiled. */
export interface SpoiledProvider {
  readonly issuer: string
  spoiled: Spoiled
  /** Who signs in. */
  person: JWTPayload & { sub: string }
  /** The keys that it publishes; the first one signs. */
  keys: readonly [SigningKey, ...SigningKey[]]
  /** How many requests have come, by path. */
  readonly asked: Map<string, number>
  readonly register: () => Promise<void>
  /** Signs as it should be done. */
  readonly sign: (claims: JWTPayload, header?: Fields, key?: SigningKey) => Promise<string>
}

/** What a code stands for. */
interface Begun {
  readonly nonce: string
  readonly challenge: string
}

/** Makes a key of ES256. */
export async function signingKey(kid: string): Promise<SigningKey> {
  const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true })
  return { kid, privateKey, publicJwk: { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' } }
}

/** Starts a provider that can be spoiled. It stops with the test. */
export async function spoiledProvider(t: Test): Promise<SpoiledProvider> {
  const codes = new Map<string, Begun>()
  const server = createServer((req, res) => void answer(provider, codes, req, res))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  const provider: SpoiledProvider = {
    issuer: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    spoiled: {},
    person: { sub: 'alice', email: 'alice@example.com', email_verified: true, amr: ['pwd'] },
    keys: [await signingKey('one')],
    asked: new Map(),
    register: () => Promise.resolve(),
    sign: (claims, header = {}, key = provider.keys[0]) => {
      const full: JWTHeaderParameters = { alg: 'ES256', kid: key.kid, ...header }
      return new SignJWT(claims).setProtectedHeader(full).sign(key.privateKey)
    },
  }
  return provider
}

async function answer(
  provider: SpoiledProvider,
  codes: Map<string, Begun>,
  req: IncomingMessage,
  res: ServerResponse,
): Promise<void> {
  const { pathname: path, searchParams: query } = new URL(req.url ?? '', provider.issuer)
  const { asked, keys, spoiled } = provider
  asked.set(path, (asked.get(path) ?? 0) + 1)
  if (spoiled.answer?.(path, res)) return
  const form = new URLSearchParams((await buffer(req)).toString())
  if (path === '/.well-known/openid-configuration') json(res, 200, discovery(provider))
  else if (path === '/jwks') json(res, 200, { keys: keys.map(({ publicJwk }) => publicJwk) })
  else if (path === '/authorize') res.writeHead(303, { location: authorized(provider, codes, query) }).end()
  else if (path === '/token') await redeem(provider, codes, form, req.headers.authorization, res)
  else json(res, 404, {})
}

function json(res: ServerResponse, status: number, body: unknown): void {
  res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

function discovery({ issuer, spoiled }: SpoiledProvider): Fields {
  const document = {
    issuer,
    authorization_endpoint: `${issuer}/authorize`,
    token_endpoint: `${issuer}/token`,
    jwks_uri: `${issuer}/jwks`,
    response_types_supported: ['code'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['ES256'],
    code_challenge_methods_supported: ['S256'],
    authorization_response_iss_parameter_supported: true,
  }
  return spoiled.discovery?.(document) ?? document
}

function authorized(
  { issuer, spoiled }: SpoiledProvider,
  codes: Map<string, Begun>,
  query: URLSearchParams,
): string {
  const code = randomUUID()
  codes.set(code, { nonce: query.get('nonce') ?? '', challenge: query.get('code_challenge') ?? '' })
  const back = new URL(query.get('redirect_uri') ?? '')
  back.search = new URLSearchParams({ code, state: query.get('state') ?? '', iss: issuer }).toString()
  spoiled.callback?.(back.searchParams)
  return back.href
}

async function redeem(
  { issuer, spoiled, person, sign }: SpoiledProvider,
  codes: Map<string, Begun>,
  form: URLSearchParams,
  authorization: string | undefined,
  res: ServerResponse,
): Promise<void> {
  const code = form.get('code') ?? ''
  const begun = codes.get(code)
  const isItsOwn = hash('sha256', form.get('code_verifier') ?? '', 'base64url') === begun?.challenge
  // RFC 6749 §2.3.1: both are encoded as a form's are.
  const [, basic = ''] = (authorization ?? '').split('Basic ')
  const client = decodeURIComponent(Buffer.from(basic, 'base64').toString())
  if (!begun || !(isItsOwn || spoiled.careless) || client !== `${CLIENT_ID}:${CLIENT_SECRET}`)
    return json(res, 400, { error: 'invalid_grant' })
  if (!spoiled.careless) codes.delete(code)
  const iat = Math.floor(Date.now() / 1000)
  const said = { iss: issuer, aud: CLIENT_ID, iat, exp: iat + 120, nonce: begun.nonce, ...person }
  const claims = spoiled.claims?.(said) ?? said
  const token = await Promise.resolve(spoiled.idToken?.(claims) ?? sign(claims))
  const tokens = { access_token: randomUUID(), token_type: 'Bearer', expires_in: 60, id_token: token }
  json(res, 200, spoiled.tokens?.(tokens) ?? tokens)
}
