import fc from 'fast-check'
import t from 'tap'
import { decodeBase64url, parseJwt } from '../../../plugins/dpop/jwt.ts'
import { runsOf } from '../../support/sweep-places.ts'

const part = (text: string): string => Buffer.from(text).toString('base64url')
const GOOD = `${part('{"alg":"ES256"}')}.${part('{"jti":"1"}')}.c2ln`

await t.test('D-04 a compact JWS is taken apart', async (t) => {
  t.match(parseJwt(GOOD, 100), {
    header: { alg: 'ES256' },
    claims: { jti: '1' },
    signed: GOOD.slice(0, GOOD.lastIndexOf('.')),
    signature: Buffer.from('sig'),
  })
})

await t.test('D-04 T13 what is not exactly one is refused', async (t) => {
  const [head = '', body = '', tail = ''] = GOOD.split('.')
  const wrong: Record<string, string> = {
    empty: '',
    'one segment': `${head}`,
    'two segments': `${head}.${body}`,
    'four segments': `${GOOD}.c2ln`,
    'five segments, as encrypted': `${GOOD}.c2ln.c2ln`,
    'an empty segment': `${head}..${tail}`,
    'an empty signature': `${head}.${body}.`,
    'a blank in front': ` ${GOOD}`,
    'a line feed behind': `${GOOD}\n`,
    'standard base64': `${head}.${body}.+/+/`,
    padding: `${head}.${body}.c2lnMQ==`,
    'altered tail bits of the signature': `${head}.${body}.c2lnMR`,
    'altered tail bits of the claims': `${head}.${body.slice(0, -1)}1.${tail}`,
    'a length that no bytes have': `${head}.${body}.c2lnM`,
    'a header that is no object': `${part('["ES256"]')}.${body}.${tail}`,
    'a header that is null': `${part('null')}.${body}.${tail}`,
    'claims that are a text': `${head}.${part('"jti"')}.${tail}`,
    'claims that are no JSON': `${head}.${part('{"jti":1,}')}.${tail}`,
    'something behind the claims': `${head}.${part('{"jti":"1"}{}')}.${tail}`,
    'a byte order mark': `${head}.${part('\ufeff{"jti":"1"}')}.${tail}`,
    'invalid UTF-8': `${head}.${Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]).toString('base64url')}.${tail}`,
    'a member twice': `${head}.${part('{"jti":"1","jti":"2"}')}.${tail}`,
    'a member twice, once escaped': `${head}.${part('{"jti":"1","\\u006ati":"2"}')}.${tail}`,
    'a member twice further in': `${part('{"jwk":{"x":1,"x":2}}')}.${body}.${tail}`,
  }
  for (const [name, text] of Object.entries(wrong)) t.equal(parseJwt(text, 1_000), null, name)
  t.equal(parseJwt(GOOD, GOOD.length - 1), null, 'too long')
  t.ok(parseJwt(GOOD, GOOD.length), 'and not a byte too long')
})

await t.test(
  'T13 each text that is read as base64url is the only one that stands for its bytes',
  async () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.base64String(), fc.stringMatching(/^[A-Za-z0-9_-]*$/)), (text) => {
        const bytes = decodeBase64url(text)
        return bytes === null || bytes.toString('base64url') === text
      }),
      { numRuns: runsOf(10_000) },
    )
  },
)

await t.test('D-04 no text makes more of us than a JWT or a no', async () => {
  const segment = fc.oneof(
    fc.jsonValue().map((value) => part(JSON.stringify(value))),
    fc.uint8Array({ maxLength: 64 }).map((bytes) => Buffer.from(bytes).toString('base64url')),
    fc.string(),
    fc.constantFrom(...GOOD.split('.')),
  )
  fc.assert(
    fc.property(fc.array(segment, { maxLength: 6 }), (segments) => {
      const jwt = parseJwt(segments.join('.'), 8_192)
      return jwt === null || (typeof jwt.header === 'object' && jwt.signed === segments.slice(0, 2).join('.'))
    }),
    { numRuns: runsOf(10_000) },
  )
})
