import { createHash, X509Certificate } from 'node:crypto'
import t from 'tap'
import { thumbprintOf } from '../../../certs/x509/x509.ts'
import { bench, boundTo, dpopToken, refusedWith } from '../../support/auth/bench.ts'

// RFC 8705, row by row (docs/threats.md#rfc8705): the rows that tokens are concerned with. The TLS layer's
// rows are in test/attacks/certificates.test.ts, enrollment's in test/certs.

await t.test('RFC 8705 §3 tokens are bound to the certificate', async (t) => {
  const b = await bench(t)
  const eve = await b.gateway.enroll('eve', ['llm.chat'])
  const bearer: string = (await b.token(null)).json.access_token
  const bound: string = (await b.token()).json.access_token
  const asBearer = { authorization: `Bearer ${bearer}` }

  await t.test('M-01 a token without its certificate is nothing', async (t) => {
    t.equal((await b.send(null, { headers: asBearer })).status, 200, 'with it')
    for (const [name, dpop, headers] of [
      ['a bearer', null, asBearer],
      ['a bound one', b.sign(boundTo(bound)), dpopToken(bound)],
    ] as const) {
      const { status, json, headers: answer } = await b.send(dpop, { headers, who: null })
      t.strictSame([status, json.reason], [401, 'certificate_required'], name)
      t.match(answer['www-authenticate'], /^DPoP error="invalid_token"/)
    }
    const { headers: nothing } = await b.send(null, { who: null })
    t.notMatch(nothing['www-authenticate'], /error=/, 'who brings nothing is only asked for it')
  })

  await t.test('M-01 a token with another pinned certificate is invalid_token', async (t) => {
    refusedWith(t, await b.send(null, { headers: asBearer, who: eve }), 'token_invalid', 'a bearer')
    const dpop = b.sign(boundTo(bound))
    refusedWith(
      t,
      await b.send(dpop, { headers: dpopToken(bound), who: eve }),
      'token_invalid',
      'a bound one',
    )
    t.equal((await b.send(dpop, { headers: dpopToken(bound) })).status, 200, 'the proof itself was good')
  })

  await t.test('M-02 the certificate is the TLS layer’s, whatever a header says', async (t) => {
    const { raw } = new X509Certificate(b.bot.cert)
    const der = raw.toString('base64')
    for (const [name, value] of Object.entries({
      'x-client-cert': encodeURIComponent(b.bot.cert),
      'x-forwarded-client-cert': `Hash=${thumbprintOf(raw)};Cert="${encodeURIComponent(b.bot.cert)}"`,
      'x-ssl-client-cert': encodeURIComponent(b.bot.cert),
      'x-ssl-client-sha256': thumbprintOf(raw),
      'client-cert': `:${der}:`,
      'x-arr-clientcert': der,
    })) {
      const headers = { ...asBearer, [name]: value }
      refusedWith(t, await b.send(null, { headers, who: eve }), 'token_invalid', name)
      t.equal((await b.send(null, { headers, who: null })).json.reason, 'certificate_required', name)
      const before = b.gateway.upstream.seen.length
      t.equal((await b.send(null, { headers })).status, 200)
      t.equal(b.gateway.upstream.seen[before]?.headers[name], undefined, `${name} is not handed on`)
    }
  })

  await t.test('M-03 §3.1 x5t#S256 is the digest of the DER, base64url without padding', async (t) => {
    const { cnf } = JSON.parse(Buffer.from(bearer.split('.')[1] ?? '', 'base64url').toString())
    const { raw } = new X509Certificate(b.bot.cert)
    t.equal(cnf['x5t#S256'], createHash('sha256').update(raw).digest('base64url'))
    t.match(cnf['x5t#S256'], /^[\w-]{43}$/)
  })

  await t.test('M-15 §3.3 §5 both metadata documents say so', async (t) => {
    for (const path of ['oauth-authorization-server', 'oauth-protected-resource']) {
      const { json } = await b.gateway.call(null, 'GET', `/.well-known/${path}`)
      t.equal(json.tls_client_certificate_bound_access_tokens, true, path)
    }
    const { json } = await b.gateway.call(null, 'GET', '/.well-known/oauth-authorization-server')
    t.ok(json.token_endpoint_auth_methods_supported.includes('tls_client_auth'), '§2.1.1')
  })
})

await t.test('M-03 RFC 8705 Appendix A the digest of the example is the one in the RFC', (t) => {
  const der = `
MIIBBjCBrAIBAjAKBggqhkjOPQQDAjAPMQ0wCwYDVQQDDARtdGxzMB4XDTE4MTAx
ODEyMzcwOVoXDTIyMDUwMjEyMzcwOVowDzENMAsGA1UEAwwEbXRsczBZMBMGByqG
SM49AgEGCCqGSM49AwEHA0IABNcnyxwqV6hY8QnhxxzFQ03C7HKW9OylMbnQZjjJ
/Au08/coZwxS7LfA4vOLS9WuneIXhbGGWvsDSb0tH6IxLm8wCgYIKoZIzj0EAwID
SQAwRgIhAP0RC1E+vwJD/D1AGHGzuri+hlV/PpQEKTWUVeORWz83AiEA5x2eXZOV
bUlJSGQgjwD5vaUaKlLR50Q2DmFfQj1L+SY=`
  const thumbprint = thumbprintOf(Buffer.from(der, 'base64'))
  t.equal(Buffer.from(thumbprint, 'hex').toString('base64url'), 'A4DtL2JmUMhAsvJj5tKyn64SqzmuXbMrJa0n761y5v0')
  t.end()
})

await t.test(
  'M-01 a token stays with the certificate that it was asked with, also within one principal',
  async (t) => {
    const b = await bench(t)
    const bearer: string = (await b.token(null)).json.access_token
    const headers = { authorization: `Bearer ${bearer}` }
    const { json } = await b.gateway.admin('POST', `/v1/admin/agents/${b.bot.id}/rotate-cert`, {
      grace_hours: 1,
    })
    const rotated = { id: b.bot.id, cert: json.cert_chain_pem, key: json.private_key_pem }
    t.equal((await b.send(null, { who: rotated })).status, 200, 'the new certificate is served')
    refusedWith(
      t,
      await b.send(null, { headers, who: rotated }),
      'token_invalid',
      'with the token of the old one it is not',
    )
    t.equal((await b.send(null, { headers })).status, 200, 'while the old one is in its grace')
  },
)
