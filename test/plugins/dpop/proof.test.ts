import { hash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { checkProof, knownProofKeys, normalUrl, type ProofTarget } from '../../../plugins/dpop/proof.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { proof, proofSigner } from '../../support/dpop.ts'
import { refused } from '../../support/refused.ts'
import { runsOf } from '../../support/sweep-places.ts'

const AT = Date.UTC(2026, 0, 1)
const URL_OF_DOOR = 'https://gateway.test/v1/chat/completions'
const TARGET: ProofTarget = {
  method: 'POST',
  urls: new Set([URL_OF_DOOR]),
  at: AT,
  accessToken: null,
  isFresh: (nonce) => nonce === 'fresh',
}
const CLAIMS = { htm: 'POST', htu: URL_OF_DOOR, iat: AT / 1000, jti: 'one', nonce: 'fresh' }
const signer = proofSigner()

await t.test('RFC 9449 §4.3 a correct proof gives its key and what is to be claimed', async (t) => {
  t.strictSame(checkProof(proof(signer, CLAIMS), TARGET), {
    jkt: signer.jkt,
    replayKey: hash('sha256', `${signer.jkt} one`),
    expiresAt: AT + 70_000,
  })
})

await t.test('RFC 7519 §2 an instant may have a fraction, and holds no longer for that', async (t) => {
  const at = (iat: number) => checkProof(proof(signer, { ...CLAIMS, iat }), TARGET)
  t.equal(at(AT / 1000 - 0.75).expiresAt, AT + 69_250)
  t.equal(at(AT / 1000 + 59.5).expiresAt, AT + 129_500)
  t.equal(at(AT / 1000 + 0.1234567).expiresAt, AT + 70_124)
  for (const iat of [AT / 1000 - 60.001, AT / 1000 + 60.001, AT, 1e300, -1.5])
    t.throws(() => at(iat), refused('proof_invalid'), String(iat))
})

await t.test(
  'RFC 9449 §4.1 §7.1 both examples of the RFC hold, but for the nonce that they lack',
  async (t) => {
    const header =
      'eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6IkVTMjU2IiwiandrIjp7Imt0eSI6IkVDIiwieCI6Imw4dEZyaHgtMzR0VjNoUklDUkRZOXpDa0RscEJoRjQyVVFVZldWQVdCRnMiLCJ5IjoiOVZFNGpmX09rX282NHpiVFRsY3VOSmFqSG10NnY5VERWclUwQ2R2R1JEQSIsImNydiI6IlAtMjU2In19'
    const atToken = `${header}.eyJqdGkiOiItQndDM0VTYzZhY2MybFRjIiwiaHRtIjoiUE9TVCIsImh0dSI6Imh0dHBzOi8vc2VydmVyLmV4YW1wbGUuY29tL3Rva2VuIiwiaWF0IjoxNTYyMjYyNjE2fQ.2-GxA6T8lP4vfrg8v-FdWP0A0zdrj8igiMLvqRMUvwnQg4PtFLbdLXiOSsX0x7NVY-FNyJK70nfbV37xRZT3Lg`
    const atResource = `${header}.eyJqdGkiOiJlMWozVl9iS2ljOC1MQUVCIiwiaHRtIjoiR0VUIiwiaHR1IjoiaHR0cHM6Ly9yZXNvdXJjZS5leGFtcGxlLm9yZy9wcm90ZWN0ZWRyZXNvdXJjZSIsImlhdCI6MTU2MjI2MjYxOCwiYXRoIjoiZlVIeU8ycjJaM0RaNTNFc05yV0JiMHhXWG9hTnk1OUlpS0NBcWtzbVFFbyJ9.2oW9RP35yRqzhrtNP86L-Ey71EOptxRimPPToA1plemAgR6pxHF8y6-yqyVnmcw6Fy1dqd-jfxSYoMxhAJpLjA`
    const token = { ...TARGET, urls: new Set(['https://server.example.com/token']), at: 1_562_262_616_000 }
    const resource = {
      ...TARGET,
      method: 'GET',
      urls: new Set(['https://resource.example.org/protectedresource']),
      at: 1_562_262_618_000,
      accessToken: 'Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU',
    }
    // The nonce is asked for after the signature: all else has held.
    t.throws(() => checkProof(atToken, token), refused('use_dpop_nonce'))
    t.throws(() => checkProof(atResource, resource), refused('use_dpop_nonce'))
    t.throws(() => checkProof(`${atToken.slice(0, -2)}Lw`, token), refused('proof_invalid'))
    t.throws(() => checkProof(atResource, { ...resource, accessToken: 'another' }), refused('proof_invalid'))
  },
)

await t.test('D-08 a header that is known spares no proof its signature, nor any other check', async (t) => {
  const one = proofSigner()
  const first = proof(one, CLAIMS)
  const [head = '', body = '', tail = ''] = first.split('.')
  const before = knownProofKeys.size
  checkProof(first, TARGET)
  t.ok(knownProofKeys.has(head))
  t.equal(checkProof(proof(one, { ...CLAIMS, jti: 'two' }), TARGET).jkt, one.jkt)
  t.equal(knownProofKeys.size, before + 1, 'one for all proofs of a key')
  const byAnother = proof({ ...proofSigner(), jwk: one.jwk }, CLAIMS)
  t.equal(byAnother.split('.')[0], head)
  const other = proof(one, { ...CLAIMS, jti: 'three' }).split('.')
  for (const wrong of [
    byAnother,
    `${head}.${other[1]}.${tail}`,
    `${head}.${body}.${other[2]}`,
    `${head}.${body}.`,
    `${head}.${body}`,
    proof(one, { ...CLAIMS, htm: 'GET' }),
    proof(one, { ...CLAIMS, iat: CLAIMS.iat - 61 }),
    ...[
      { alg: 'PS256' },
      { typ: 'jwt' },
      { crit: ['x'] },
      { jku: 'https://a' },
      { jwk: { ...one.jwk, d: 'x' } },
    ].map((header) => proof(one, CLAIMS, header)),
  ])
    t.throws(() => checkProof(wrong, TARGET), refused('proof_invalid'), wrong)
  t.throws(() => checkProof(proof(one, { ...CLAIMS, nonce: 'stale' }), TARGET), refused('use_dpop_nonce'))
})

await t.test('D-08 only the header of a proof that held is remembered, and no long one', async (t) => {
  const before = knownProofKeys.size
  const stranger = () => proofSigner()
  const stale = proof(stranger(), { ...CLAIMS, nonce: 'stale' })
  t.throws(() => checkProof(stale, TARGET), refused('use_dpop_nonce'))
  for (const junk of [
    proof(stranger(), { ...CLAIMS, htu: 'https://elsewhere.test/' }),
    proof({ ...stranger(), jwk: stranger().jwk }, CLAIMS),
    proof(stranger(), CLAIMS, { typ: 'jwt' }),
  ])
    t.throws(() => checkProof(junk, TARGET), refused('proof_invalid'))
  const long = stranger()
  t.equal(checkProof(proof(long, CLAIMS, { kid: 'k'.repeat(1_000) }), TARGET).jkt, long.jkt)
  t.equal(knownProofKeys.size, before)
  t.equal(knownProofKeys.maxSize, 10_000)
})

await t.test('D-13 a proof without a fresh nonce is told so only where all else holds', async (t) => {
  t.throws(() => checkProof(proof(signer, { ...CLAIMS, nonce: 'stale' }), TARGET), refused('use_dpop_nonce'))
  const other = proof(signer, { ...CLAIMS, nonce: 'stale' }, { jwk: proofSigner().jwk })
  t.throws(() => checkProof(other, TARGET), refused('proof_invalid'))
})

await t.test('D-12 RFC 3986 §6.2 spellings of one URL are one, and look-alikes are none', async (t) => {
  const same = [
    'HTTPS://GATEWAY.TEST/v1/chat/completions',
    'https://gateway.test:443/v1/chat/completions',
    'https://gateway.test:/v1/chat/completions',
    'https://gateway.test/v1/chat/completions?q=1#f',
    'https://gateway.test/v1/./chat/completions',
    'https://gateway.test/v1/x/../chat/completions',
    'https://gateway.test/v1/%63hat/completions',
  ]
  for (const text of same) t.equal(normalUrl(text), URL_OF_DOOR, text)
  t.equal(normalUrl('https://gateway.test/%7ea/%2f'), 'https://gateway.test/~a/%2F')
  const none = [
    '',
    '/v1/chat/completions',
    '//gateway.test/v1/chat/completions',
    'https:gateway.test/v1/chat/completions',
    'https:/gateway.test/v1/chat/completions',
    'https:///gateway.test/v1/chat/completions',
    'ftp://gateway.test/v1/chat/completions',
    'https://user@gateway.test/v1/chat/completions',
    'https://:@gateway.test/v1/chat/completions',
    'https://@gateway.test/v1/chat/completions',
    'https://%67ateway.test/v1/chat/completions',
    'https://%EF%BD%87ateway.test/v1/chat/completions',
    'https://\uff47ateway.test/v1/chat/completions',
    'https://gate\u00adway.test/v1/chat/completions',
    'https://gateway.test\\v1\\chat\\completions',
    'https://gateway.test/v1\\chat/completions',
    'https://gateway.test/v1/chat/\tcompletions',
    ' https://gateway.test/v1/chat/completions',
    'https://gateway.test/v1/chat/completions\n',
    'https://127.1/v1/chat/completions',
    'https://0x7f000001/v1/chat/completions',
    'https://gateway.test:99999/v1/chat/completions',
  ]
  for (const text of none) t.equal(normalUrl(text), null, JSON.stringify(text))
  t.equal(normalUrl('https://[::1]:9443/v1'), 'https://[::1]:9443/v1')
})

await t.test('D-12 a normal URL is normal', async () => {
  const text = fc.oneof(
    fc.webUrl({ withQueryParameters: true, withFragments: true }),
    fc.string().map((path) => `https://gateway.test/${path}`),
    fc.string(),
  )
  fc.assert(
    fc.property(text, (url) => {
      const normal = normalUrl(url)
      return normal === null || normalUrl(normal) === normal
    }),
    { numRuns: runsOf(10_000) },
  )
})

const hostile = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom(null, true, 0, -1, 1.5, 1e300, '', '123', [], {}, Number.MAX_SAFE_INTEGER),
  fc.constantFrom('dpop+jwt', 'ES256', 'none', signer.jwk, { ...signer.jwk, d: 'x' }, 'POST', URL_OF_DOOR),
)
const header = fc.dictionary(fc.constantFrom('typ', 'alg', 'jwk', 'crit', 'jku', 'b64', '__proto__'), hostile)
const NAMES = [
  'jti',
  'htm',
  'htu',
  'iat',
  'ath',
  'nonce',
  'exp',
  'nbf',
  '__proto__',
  'constructor',
  'x',
] as const
const claims = fc.dictionary(fc.constantFrom(...NAMES), hostile)

await t.test('D-06 a proof with hostile members, well signed, gets a verdict and nothing else', async (t) => {
  const seen = { holds: 0, refused: 0 }
  fc.assert(
    fc.property(header, claims, (wrongHeader, wrongClaims) => {
      const text = proof(signer, { ...CLAIMS, ...wrongClaims }, wrongHeader)
      const verdict = verdictOf(text)
      if (verdict === 'holds') seen.holds += 1
      else seen.refused += 1
      return verdict !== null
    }),
    { numRuns: runsOf(10_000) },
  )
  t.ok(seen.holds > 0 && seen.refused > 0, `both verdicts were met: ${JSON.stringify(seen)}`)
})

await t.test('D-04 no text at all gets anything but a verdict', async () => {
  const good = proof(signer, CLAIMS)
  const text = fc.oneof(
    fc.string({ maxLength: 300 }),
    // One character of a good one replaced.
    fc
      .tuple(fc.nat(good.length - 1), fc.string({ minLength: 1, maxLength: 1 }))
      .filter(([at, character]) => good[at] !== character)
      .map(([at, character]) => good.slice(0, at) + character + good.slice(at + 1)),
  )
  fc.assert(
    fc.property(text, (sent) => verdictOf(sent) === 'proof_invalid'),
    { numRuns: runsOf(10_000) },
  )
})

/** `holds`, the reason of a refusal, or null for anything else. */
function verdictOf(text: string): string | null {
  try {
    checkProof(text, TARGET)
    return 'holds'
  } catch (error) {
    return error instanceof Refusal ? error.reason : null
  }
}
