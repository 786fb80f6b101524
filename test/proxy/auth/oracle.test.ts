import { generateKeyPairSync, sign as signBytes } from 'node:crypto'
import fc from 'fast-check'
import { type CryptoKey, importJWK } from 'jose'
import * as oauth from 'oauth4webapi'
import t from 'tap'
import { tokenVerifier } from '../../../plugins/dpop/access-token.ts'
import { dpop, NonceIssuer } from '../../../plugins/dpop/dpop.ts'
import type { TlsPeer } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { athOf, type ProofSigner, proofSigner } from '../../support/dpop.ts'
import { holderOf } from '../../support/permit.ts'
import { arrival } from '../../support/plugins/arrival.ts'
import { BASE_URL } from '../../support/plugins/constrained.ts'
import { runsOf } from '../../support/sweep-places.ts'

// docs/threats.md#fapi2: the verdict of `dpop` against that of an independent resource server, over requests
// that are spoiled in none to three places. Both read the same request, but for one thing: the oracle takes a
// token with one kind of confirmation only, so its token lacks the certificate's, and its proof is made out
// for that token. Each has signatures of its own, and ES256 makes them at random: what a mutation does must
// not depend on a signature's characters, or the two would judge different requests and a seed would not
// bring one back.

type Members = Readonly<Record<string, unknown>>
type Place =
  | 'proof header'
  | 'proof claim'
  | 'proof text'
  | 'token header'
  | 'token claim'
  | 'token text'
  | 'authorization'
  | 'method'
  | 'url'

/** One thing that is wrong, or merely unusual. `value` undefined: left out. */
interface Mutation {
  readonly place: Place
  readonly name: string
  readonly value: unknown
}

const PATH = '/v1/chat/completions'
const nowS = Math.floor(Date.now() / 1000)
const AT = nowS * 1000
const client = proofSigner()
const issuer = proofSigner()
const THUMBPRINT = 'ab'.repeat(32)
const nonces = new NonceIssuer(Buffer.alloc(32, 7))
// Proven by its making: an EC key, which jose imports as a CryptoKey.
const verifier = (await importJWK({ ...issuer.jwk }, 'ES256')) as CryptoKey
const plugin = dpop({
  mode: 'optional',
  noDowngrade: false,
  inForce: () => ({ dpopMode: 'optional', noDowngrade: false }),
  nonces,
  baseUrls: () => [BASE_URL],
  tokens: tokenVerifier({
    issuer: () => BASE_URL,
    baseUrls: () => [BASE_URL],
    key: (kid) => Promise.resolve(kid === 'k' ? verifier : undefined),
  }),
})
const principal = holderOf('llm.chat')
// Only what TLS proved about it is looked at.
const peer = { thumbprint: THUMBPRINT, notBefore: AT - 1000, notAfter: AT + 3_600_000 } as TlsPeer

interface Rendered {
  readonly method: string
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
}

function render(mutations: readonly Mutation[], confirmation: Members): Rendered {
  const at = (place: Place): Members =>
    Object.fromEntries(mutations.filter((m) => m.place === place).map(({ name, value }) => [name, value]))
  const text = (place: Place, jws: string): string =>
    mutations
      .filter((m) => m.place === place)
      .reduce((spoiled, { name }) => TEXTS[name]?.(spoiled) ?? spoiled, jws)
  const tokenClaims = {
    iss: BASE_URL,
    aud: BASE_URL,
    sub: 'acme::bot',
    client_id: 'acme::bot',
    iat: nowS,
    exp: nowS + 900,
    jti: 'token',
    cnf: { ...confirmation, jkt: client.jkt },
    ...at('token claim'),
  }
  const token = text(
    'token text',
    jws({ alg: 'ES256', typ: 'at+jwt', kid: 'k', ...at('token header') }, tokenClaims, issuer),
  )
  const proofClaims = {
    htm: 'POST',
    htu: BASE_URL + PATH,
    iat: nowS,
    jti: 'proof',
    ath: athOf(token),
    nonce: nonces.current('resource', AT),
    ...at('proof claim'),
  }
  const header = { typ: 'dpop+jwt', alg: 'ES256', jwk: client.jwk, ...at('proof header') }
  const proof = text('proof text', jws(header, proofClaims, client))
  const scheme = mutations.find((m) => m.place === 'authorization')
  const authorization = textOf(scheme)?.replace('TOKEN', token) ?? `DPoP ${token}`
  const method = mutations.find((m) => m.place === 'method')
  const url = mutations.find((m) => m.place === 'url')
  return {
    method: textOf(method) ?? 'POST',
    url: textOf(url) ?? BASE_URL + PATH,
    headers: { ...(authorization !== '' && { authorization }), ...(proof !== '' && { dpop: proof }) },
  }
}

const textOf = (mutation: Mutation | undefined): string | undefined =>
  typeof mutation?.value === 'string' ? mutation.value : undefined

const encoded = (text: string): string => Buffer.from(text).toString('base64url')

function jws(header: Members, claims: Members, { privateKey }: ProofSigner): string {
  const signed = `${encoded(JSON.stringify(header))}.${encoded(JSON.stringify(claims))}`
  const key = { key: privateKey, dsaEncoding: 'ieee-p1363' } as const
  let signature: string
  // Until it has a character that base64 writes otherwise, for that to be spoiled in every request or in
  // none.
  do signature = signBytes('sha256', Buffer.from(signed), key).toString('base64url')
  while (!/[-_]/.test(signature))
  return `${signed}.${signature}`
}

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

const flipped = (character: string): string => ALPHABET.charAt(ALPHABET.indexOf(character) ^ 1)

/** What may happen to a JWS on its way. */
const TEXTS: Readonly<Record<string, (text: string) => string>> = {
  'tail bits': (text) => text.slice(0, -1) + ALPHABET.charAt((ALPHABET.indexOf(text.slice(-1)) & 0x30) | 5),
  padding: (text) => `${text}==`,
  'standard base64': (text) => text.replaceAll('-', '+').replaceAll('_', '/'),
  'a fourth segment': (text) => `${text}.x`,
  'two segments': (text) => text.slice(0, text.lastIndexOf('.')),
  'a flipped bit': (text) => text.slice(0, -9) + flipped(text.slice(-9, -8)) + text.slice(-8),
  'upper case': (text) => text.toUpperCase(),
  twice: (text) => `${text}, ${text}`,
  missing: () => '',
}

type Verdict = 'accepts' | 'refuses'

async function ours(mutations: readonly Mutation[]): Promise<Verdict> {
  const { method, url, headers } = render(mutations, {
    'x5t#S256': Buffer.from(THUMBPRINT, 'hex').toString('base64url'),
  })
  const { pathname, search } = new URL(url)
  const facts = {
    ...arrival({ at: AT, method, path: pathname, query: search.slice(1), headers, peer }),
    principal,
  }
  try {
    await plugin.admit(facts)
    return 'accepts'
  } catch (error) {
    // Anything else is a fault of ours, and fails the test.
    if (error instanceof Refusal && error.status === 401) return 'refuses'
    throw error
  }
}

const server = { issuer: BASE_URL, jwks_uri: `${BASE_URL}/jwks` }
const keys = JSON.stringify({ keys: [{ ...issuer.jwk, kid: 'k', alg: 'ES256', use: 'sig' }] })
const serveKeys = (): Promise<Response> =>
  Promise.resolve(new Response(keys, { headers: { 'content-type': 'application/json' } }))

async function theirs(mutations: readonly Mutation[]): Promise<Verdict> {
  const { method, url, headers } = render(mutations, {})
  try {
    await oauth.validateJwtAccessToken(server, new Request(url, { method, headers }), BASE_URL, {
      requireDPoP: true,
      [oauth.customFetch]: serveKeys,
      [oauth.clockSkew]: nowS - Math.floor(Date.now() / 1000),
    })
    return 'accepts'
  } catch {
    // Whatever it throws, it does not let the request pass.
    return 'refuses'
  }
}

interface Explanation {
  readonly why: string
  readonly ours: Verdict
  readonly of: (mutation: Mutation) => boolean
}

const isAt =
  (place: Place, ...names: readonly string[]) =>
  (m: Mutation): boolean =>
    m.place === place && (names.length === 0 || names.includes(m.name))

/** Every way in which the two may differ, and why. What is not here fails. */
const EXPLAINED: readonly Explanation[] = [
  {
    why: 'D-07 we take exactly dpop+jwt; the oracle any case, and application/ before it',
    ours: 'refuses',
    of: isAt('proof header', 'typ'),
  },
  {
    why: 'D-10 we refuse jku and x5u, which could only have us fetch; the oracle ignores them',
    ours: 'refuses',
    of: isAt('proof header', 'jku', 'x5u'),
  },
  {
    why: 'D-10 we refuse private members of any kind of key; the oracle those of the key’s own kind',
    ours: 'refuses',
    of: isAt('proof header', 'jwk'),
  },
  {
    why: 'D-13 we demand a nonce of ours; the oracle leaves it to its caller',
    ours: 'refuses',
    of: isAt('proof claim', 'nonce'),
  },
  {
    why: 'D-15 D-16 we allow sixty seconds back and ahead; the oracle three hundred either way and thirty of tolerance',
    ours: 'refuses',
    of: isAt('proof claim', 'iat', 'exp', 'nbf'),
  },
  {
    why: 'D-16 a proof may be valid sixty seconds from now, by a fresh nonce; the oracle allows thirty',
    ours: 'accepts',
    of: isAt('proof claim', 'nbf'),
  },
  {
    why: 'D-18 a jti is neither empty nor longer than 256; the oracle takes any text',
    ours: 'refuses',
    of: isAt('proof claim', 'jti'),
  },
  {
    why: 'D-12 an unreserved character may be escaped (RFC 3986 §6.2.2.2); the oracle does not resolve it',
    ours: 'accepts',
    of: (m) => isAt('proof claim', 'htu')(m) && /%[2-7][0-9a-f]/i.test(String(m.value)),
  },
  {
    why: 'D-12 we do not take a third slash, a backslash, white space or a host in another spelling; the oracle’s URL parser does',
    ours: 'refuses',
    of: (m) => isAt('proof claim', 'htu')(m) && /^\s|\s$|\\|:\/\/\/|%67|\t/.test(String(m.value)),
  },
  {
    why: 'D-12 an htu of more than 2 KiB is refused; the oracle has no limit',
    ours: 'refuses',
    of: (m) => isAt('proof claim', 'htu')(m) && String(m.value).length > 2_048,
  },
  {
    why: 'T13 we take the one text that stands for the bytes; the oracle any that decodes to them',
    ours: 'refuses',
    of: (m) =>
      isAt('proof text', 'tail bits', 'padding', 'standard base64')(m) ||
      isAt('token text', 'tail bits', 'padding', 'standard base64')(m),
  },
  {
    why: 'RFC 7519 §4.1 the claims of a token are ours: we asked nothing of what only we write (client_id, types of jti, iat)',
    ours: 'accepts',
    of: isAt('token claim', 'client_id', 'jti', 'iat'),
  },
  {
    why: 'RFC 9068 a token of ours is for one principal, which must be the certificate’s; the oracle leaves sub to its caller',
    ours: 'refuses',
    of: isAt('token claim', 'sub'),
  },
  {
    why: 'RFC 8707 a token of ours has one audience; in a list of several the oracle looks for its own',
    ours: 'refuses',
    of: (m) => isAt('token claim', 'aud')(m) && Array.isArray(m.value),
  },
  {
    why: 'RFC 7519 §4.1.4 a token ends when it says; the oracle tolerates thirty seconds',
    ours: 'refuses',
    of: isAt('token claim', 'exp', 'nbf'),
  },
  {
    why: 'RFC 7515 §4.1.4 each key of ours has its id; the oracle takes the only key without',
    ours: 'refuses',
    of: isAt('token header', 'kid'),
  },
  {
    why: 'docs/protocol.md#credentials without a token of ours in it, Authorization is a vendor’s business, and mutual TLS with a good proof is enough',
    ours: 'accepts',
    of: (m) => isAt('authorization')(m) && !/^dpop/i.test(String(m.value)),
  },
]

const NAMES = {
  'proof header': ['typ', 'alg', 'jwk', 'crit', 'jku', 'x5u', 'kid', 'unknown'],
  'proof claim': ['htm', 'htu', 'iat', 'exp', 'nbf', 'jti', 'ath', 'nonce', 'unknown'],
  'token header': ['typ', 'alg', 'kid', 'crit'],
  'token claim': ['iss', 'aud', 'sub', 'client_id', 'iat', 'exp', 'nbf', 'jti', 'unknown'],
} as const

const other = proofSigner()
const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).publicKey.export({ format: 'jwk' })

/** Values that stand for a whole kind of mistake. */
const KNOWN: readonly Mutation[] = [
  ...(['proof header', 'proof claim', 'token header', 'token claim'] as const).flatMap((place) =>
    NAMES[place].map((name): Mutation => ({ place, name, value: undefined })),
  ),
  ...(['proof text', 'token text'] as const).flatMap((place) =>
    Object.keys(TEXTS).map((name): Mutation => ({ place, name, value: null })),
  ),
  ...many('proof header', 'typ', ['JWT', 'at+jwt', 'DPoP+JWT', 'application/dpop+jwt', 'dpop+jwt ']),
  ...many('proof header', 'alg', ['none', 'HS256', 'RS256', 'PS256', 'ES384', 'EdDSA', 'es256']),
  ...many('proof header', 'jwk', [
    other.jwk,
    rsa,
    { ...client.jwk, d: 'AQAB' },
    { ...client.jwk, k: 'AQAB' },
    { ...client.jwk, kid: 'k', alg: 'ES256', use: 'sig' },
    { ...client.jwk, y: client.jwk.x },
  ]),
  ...many('proof header', 'crit', [[], ['x'], ['exp']]),
  ...many('proof header', 'jku', ['https://other.example']),
  ...many('proof header', 'x5u', ['https://other.example']),
  ...many('proof claim', 'htm', ['GET', 'post', 'PUT', ['POST']]),
  ...many('proof claim', 'htu', [
    `HTTPS://GATEWAY.TEST:443${PATH}`,
    `${BASE_URL}${PATH}?q#f`,
    `${BASE_URL}${PATH}/`,
    `${BASE_URL}/v1/./chat/completions`,
    `${BASE_URL}/v1/%63hat/completions`,
    `${BASE_URL}//v1/chat/completions`,
    `http://gateway.test${PATH}`,
    `https://gateway.test:8443${PATH}`,
    `https://user@gateway.test${PATH}`,
    `https:///gateway.test${PATH}`,
    `https://gateway.test\\v1\\chat\\completions`,
    ` ${BASE_URL}${PATH}`,
    `${BASE_URL}${PATH}\n`,
    `https://%67ateway.test${PATH}`,
    `${BASE_URL}${PATH}?${'q'.repeat(2_100)}`,
    `https://other.example${PATH}`,
    PATH,
    '',
  ]),
  ...many('proof claim', 'iat', [
    nowS - 3_600,
    nowS - 290,
    nowS - 120,
    nowS - 30,
    nowS + 5,
    nowS + 120,
    nowS + 3_600,
  ]),
  ...many('proof claim', 'exp', [nowS - 100, nowS - 20, nowS + 60]),
  ...many('proof claim', 'nbf', [nowS - 60, nowS + 20, nowS + 45, nowS + 100]),
  ...many('proof claim', 'jti', ['', 'j', 'j'.repeat(257), ['j'], 1]),
  ...many('proof claim', 'ath', ['', 'x'.repeat(43), athOf('another'), [1]]),
  ...many('proof claim', 'unknown', [{ '"': 1 }, { a: { '"': 1 } }, '"']),
  ...many('proof claim', 'nonce', ['stale', '', 1]),
  ...many('token header', 'typ', ['JWT', 'dpop+jwt']),
  ...many('token header', 'alg', ['none', 'HS256', 'PS256']),
  ...many('token header', 'kid', ['other', '']),
  ...many('token claim', 'iss', ['https://other.example', `${BASE_URL}/`]),
  ...many('token claim', 'aud', [
    'https://other.example',
    `${BASE_URL}/v1/mcp`,
    BASE_URL + PATH,
    [BASE_URL],
    [BASE_URL, 'https://other.example'],
    [],
  ]),
  ...many('token claim', 'sub', ['acme::other', 1]),
  ...many('token claim', 'client_id', [1]),
  ...many('token claim', 'exp', [nowS - 100, nowS - 20, nowS + 60]),
  ...many('token claim', 'nbf', [nowS - 60, nowS + 20, nowS + 100]),
  ...many('token claim', 'jti', [1]),
  ...many('authorization', '', [
    '',
    'Bearer TOKEN',
    'dpop TOKEN',
    'DPoP  TOKEN',
    'DPoP TOKEN x',
    'Bearer sk-vendor',
  ]),
  ...many('authorization', '', ['Basic TOKEN', 'DPoP\tTOKEN', 'DPoPTOKEN', 'DPoP']),
  ...many('method', '', ['PUT', 'PATCH', 'DELETE']),
  ...many('url', '', [`${BASE_URL}${PATH}?q=1`, `${BASE_URL}/v1/messages`]),
]

function many(place: Place, name: string, values: readonly unknown[]): readonly Mutation[] {
  return values.map((value) => ({ place, name, value }))
}

/** The explanation of a disagreement, or undefined; null where the two agree. */
async function judged(
  mutations: readonly Mutation[],
): Promise<{ ours: Verdict; explanation: Explanation | null | undefined }> {
  const verdicts = [await ours(mutations), await theirs(mutations)] as const
  if (verdicts[0] === verdicts[1]) return { ours: verdicts[0], explanation: null }
  const explanation = EXPLAINED.find((e) => e.ours === verdicts[0] && mutations.some((m) => e.of(m)))
  return { ours: verdicts[0], explanation }
}

await t.test('docs/threats.md#fapi2 both accept what is right', async (t) => {
  t.strictSame(await judged([]), { ours: 'accepts', explanation: null })
})

await t.test(
  'docs/threats.md#fapi2 each known mistake by itself: the same verdict, or an explanation',
  async (t) => {
    const met = new Set<Explanation>()
    for (const mutation of KNOWN) {
      const { ours: verdict, explanation } = await judged([mutation])
      const name = `${mutation.place} ${mutation.name}: ${JSON.stringify(mutation.value)}`.slice(0, 90)
      t.not(explanation, undefined, `${name} ${verdict}`)
      if (explanation) met.add(explanation)
    }
    const stale = EXPLAINED.filter((explanation) => !met.has(explanation)).map(({ why }) => why)
    t.strictSame(stale, [], 'no explanation is left over')
  },
)

await t.test('docs/threats.md#fapi2 thousands of requests, each spoiled in up to three places', async (t) => {
  const value = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.integer({ min: nowS - 1_000, max: nowS + 1_000 }))
  const random = fc
    .constantFrom(...(['proof header', 'proof claim', 'token header', 'token claim'] as const))
    .chain((place) => fc.record({ place: fc.constant(place), name: fc.constantFrom(...NAMES[place]), value }))
  // Each place once: a bit that is flipped twice is none, and of two values for one claim only the last is
  // sent.
  const selector = ({ place, name }: Mutation): string => `${place} ${name}`
  const mutations = fc.uniqueArray(fc.oneof(fc.constantFrom(...KNOWN), random), { maxLength: 3, selector })
  const seen = { accepts: 0, refuses: 0 }
  await fc.assert(
    fc.asyncProperty(mutations, async (some) => {
      const { ours: verdict, explanation } = await judged(some)
      seen[verdict] += 1
      return explanation !== undefined
    }),
    { numRuns: runsOf(4_000) },
  )
  t.ok(seen.accepts > 10 && seen.refuses > 100, JSON.stringify(seen))
})
