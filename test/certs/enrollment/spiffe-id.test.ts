import { X509Certificate } from 'node:crypto'
import fc from 'fast-check'
import { GeneralName } from 'pkijs'
import t from 'tap'
import { alternativeNames } from '../../../certs/authority/builder.ts'
import { issueClientCertificate } from '../../../certs/authority/issue.ts'
import { parseSpiffeId, printSpiffeId, uriNamesOf } from '../../../certs/enrollment/spiffe-id.ts'
import { readCertificate } from '../../../certs/x509/x509.ts'
import { AT, BOT, madeAuthority, odd } from '../../support/certs/made.ts'

const uri = (value: string): GeneralName => new GeneralName({ type: 6, value })

await t.test(
  '§5.1 a SPIFFE id reads as trust domain, organisation and name, and prints as it was read',
  async (t) => {
    const id = { trustDomain: 'sallyport.local', org: 'Acme_1', name: 'bot.2-x' }
    t.same(parseSpiffeId('spiffe://sallyport.local/Acme_1/bot.2-x'), id)
    t.equal(printSpiffeId(id), 'spiffe://sallyport.local/Acme_1/bot.2-x')
  },
)

await t.test('M-08 only the one exact spelling of a SPIFFE id is read', async (t) => {
  const refused: readonly [string, RegExp][] = [
    ['', /starts with spiffe/],
    ['SPIFFE://td/acme/bot', /starts with spiffe/],
    [' spiffe://td/acme/bot', /starts with spiffe/],
    ['https://td/acme/bot', /starts with spiffe/],
    ['spiffe://td/acme', /three parts/],
    ['spiffe://td/acme/bot/', /three parts/],
    ['spiffe://td/acme/bot/x', /three parts/],
    ['spiffe://td/../acme/bot', /three parts/],
    ['spiffe://TD/acme/bot', /trust domain/],
    ['spiffe:///acme/bot', /trust domain/],
    ['spiffe://td:443/acme/bot', /trust domain/],
    ['spiffe://me@td/acme/bot', /trust domain/],
    ['spiffe://td//bot', /organisation/],
    ['spiffe://td/../bot', /organisation/],
    ['spiffe://td/ac%6de/bot', /organisation/],
    ['spiffe://td/acme/', /the name/],
    ['spiffe://td/acme/.', /the name/],
    ['spiffe://td/acme/..', /the name/],
    ['spiffe://td/acme/bot%2f', /the name/],
    ['spiffe://td/acme/bot?x=1', /the name/],
    ['spiffe://td/acme/bot#x', /the name/],
    ['spiffe://td/acme/bot\0', /the name/],
    ['spiffe://td/acme/bot\n', /the name/],
    ['spiffe://td/acme/bot,DNS:evil', /the name/],
    ['spiffe://td/acme/bót', /the name/],
    [`spiffe://td/acme/${'b'.repeat(256)}`, /the name/],
  ]
  for (const [text, reason] of refused)
    t.throws(() => parseSpiffeId(text), { message: reason }, JSON.stringify(text))
})

await t.test('M-08 a part that would read as two is not printed', async (t) => {
  t.throws(() => printSpiffeId({ trustDomain: 'td', org: 'acme', name: 'bot/root' }), /the name/)
  t.throws(() => printSpiffeId({ trustDomain: 'TD', org: 'acme', name: 'bot' }), /trust domain/)
})

await t.test('M-08 whatever parses prints back to the very same text', async () => {
  const text = fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }).map((tail) => `spiffe://td/acme/${tail}`),
  )
  fc.assert(
    fc.property(text, (candidate) => {
      const id = attempt(() => parseSpiffeId(candidate))
      return id === null || printSpiffeId(id) === candidate
    }),
    { numRuns: 300 },
  )
})

await t.test('M-08 the URI names of a certificate are read from its SAN, each one, in order', async (t) => {
  const one = await odd({ extensions: [alternativeNames([uri('spiffe://td/acme/bot')])] })
  t.same(uriNamesOf(one.x509.raw), ['spiffe://td/acme/bot'])
  const dns = new GeneralName({ type: 2, value: 'localhost' })
  const two = await odd({
    extensions: [alternativeNames([uri('spiffe://td/acme/a'), dns, uri('spiffe://td/acme/b')])],
  })
  t.same(uriNamesOf(two.x509.raw), ['spiffe://td/acme/a', 'spiffe://td/acme/b'])
  const none = await odd({ extensions: [] })
  t.same(uriNamesOf(none.x509.raw), [])
})

await t.test('M-08 names injected inside one URI stay one URI, which is no SPIFFE id', async (t) => {
  const injections = [
    'spiffe://a/b/c,DNS:evil',
    'spiffe://a/b/c, URI:spiffe://a/b/root',
    'spiffe://a/b/c\0.evil',
  ]
  for (const injected of injections) {
    const certificate = await odd({ extensions: [alternativeNames([uri(injected)])] })
    t.same(uriNamesOf(certificate.x509.raw), [injected])
    t.throws(() => parseSpiffeId(injected), /the name|three parts/)
  }
})

await t.test('M-08 a certificate with two subjectAltName extensions is refused', async (t) => {
  const twice = await odd({
    extensions: [
      alternativeNames([uri('spiffe://td/acme/a')]),
      alternativeNames([uri('spiffe://td/acme/b')]),
    ],
  })
  t.throws(() => uriNamesOf(twice.x509.raw), /twice/)
})

await t.test('M-12 bytes that are not exactly one certificate are refused with an Error', async (t) => {
  const { raw } = new X509Certificate((await madeAuthority()).rootPem)
  // Its parts reach beyond its end.
  const shortened = Buffer.from(raw)
  shortened.writeUInt16BE(raw.readUInt16BE(2) - 1, 2)
  const refused = [
    Buffer.alloc(0),
    Buffer.from('hello'),
    raw.subarray(0, -1),
    Buffer.concat([raw, Buffer.of(0)]),
    shortened,
  ]
  for (const der of refused) t.throws(() => uriNamesOf(der), /not one X.509 certificate/)
  // 20,000 nested sequences of indefinite length.
  t.throws(() => uriNamesOf(Buffer.alloc(40_000, Buffer.of(0x30, 0x80))), /not one X.509 certificate/)
})

await t.test('M-12 a mutated certificate is read or refused with an Error, and always at once', async (t) => {
  const { authority } = await madeAuthority()
  const { certPem } = await issueClientCertificate(authority, BOT, { at: AT, days: 90 })
  const { raw } = new X509Certificate(certPem)
  const change = fc.record({ at: fc.nat(raw.length - 1), to: fc.nat(255), cut: fc.nat(3) })
  let refused = 0
  fc.assert(
    fc.property(fc.array(change, { minLength: 1, maxLength: 6 }), (changes) => {
      let bytes = Buffer.from(raw)
      for (const { at, to, cut } of changes) {
        bytes[Math.min(at, bytes.length - 1)] = to
        if (cut === 0) bytes = Buffer.concat([bytes.subarray(0, at), bytes.subarray(at + 1)])
      }
      const names = attempt(() => uriNamesOf(bytes))
      if (names === null) refused += 1
      return names === null || names.every((name) => typeof name === 'string')
    }),
    { numRuns: 500 },
  )
  t.ok(refused > 0, 'some of them were refused')
  t.doesNotThrow(() => readCertificate(raw))
})

/** Null where it threw an Error; anything else that is thrown goes on. */
function attempt<T>(work: () => T): T | null {
  try {
    return work()
  } catch (error) {
    if (error instanceof Error) return null
    throw error
  }
}
