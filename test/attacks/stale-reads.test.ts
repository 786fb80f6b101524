import t from 'tap'
import { proofSigner } from '../support/dpop.ts'
import { testGateway } from '../support/gateway.ts'

await t.test('RFC 9110 §13.1.1 nothing is done to an agent on the strength of a stale read', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const path = `/v1/admin/agents/${bot.id}`
  const { headers, json: before } = await gateway.admin('GET', path)
  const read = { 'if-match': String(headers.etag) }
  await gateway.admin('PATCH', `${path}/capabilities`, { capabilities: ['http.get'] })
  const changes = [
    ['PATCH', `${path}/capabilities`, { capabilities: ['llm.chat'] }],
    ['POST', `${path}/dpop-jwk`, proofSigner().jwk],
    ['POST', `${path}/rotate-cert`, { grace_hours: 0 }],
    ['DELETE', path, undefined],
  ] as const
  for (const [method, where, body] of changes) {
    const { status, json } = await gateway.admin(method, where, body, read)
    t.strictSame([status, json?.reason], [412, 'precondition_failed'], `${method} ${where}`)
  }
  const { json: after } = await gateway.admin('GET', path)
  t.match(after, {
    capabilities: ['http.get'],
    is_active: true,
    dpop_jkt: null,
    cert_thumbprint: before.cert_thumbprint,
  })
})

await t.test('RFC 9110 §13.1.1 of two changes at once on one read one is done', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const path = `/v1/admin/agents/${bot.id}`
  const read = { 'if-match': String((await gateway.admin('GET', path)).headers.etag) }
  const keys = Array.from({ length: 5 }, () =>
    gateway.admin('POST', `${path}/dpop-jwk`, proofSigner().jwk, read),
  )
  const statuses = (await Promise.all(keys)).map(({ status }) => status)
  t.strictSame(
    statuses.toSorted((a, b) => a - b),
    [200, 412, 412, 412, 412],
  )
})
