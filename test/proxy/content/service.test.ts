import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import t, { type Test } from 'tap'
import { DELTAS, type DeltaDialect, events } from '../../support/content/streams.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'

const PATH = '/v1/chat/completions'

/** A service of an organisation's own, on a port of its own. */
async function contentServer(t: Test) {
  const asked: Record<string, unknown>[] = []
  const server = createServer((req, res) => {
    void json(req).then((question) => {
      asked.push(question as Record<string, unknown>)
      service.answer(res)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const service = { url: `http://127.0.0.1:${port}/check`, asked, answer: says({ allow: true }) }
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return service
}

const says =
  (value: unknown, status = 200) =>
  (res: ServerResponse): void =>
    void res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))

await t.test('a service allows or refuses, and anything else refuses', async (t) => {
  const service = await contentServer(t)
  const file = `plugin: content
secrets: { where: [request] }
checks:
  - { name: dlp, url: "${service.url}", where: [request, response], deadline_ms: 500, max_kib: 1 }
`
  const gateway = await testGateway(t, { files: { '37-content.yaml': file } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const call = (more = {}) => gateway.call(bot, 'POST', PATH, { body: { ...CHAT, ...more } })
  t.equal((await call()).status, 200)
  t.match(service.asked, [
    {
      version: 1,
      where: 'request',
      request_id: /^req_/,
      principal: { id: bot.id, type: 'agent' },
      client: null,
      model: CHAT.model,
      tool: null,
      sha256: /^[0-9a-f]{64}$/,
    },
    { where: 'response' },
  ])
  t.ok(JSON.stringify(service.asked[0]).includes(JSON.stringify(CHAT.messages[0]?.content)))

  service.answer = says({ allow: false, reason: 'It names a customer.', findings: [{ rule: 'customer' }] })
  t.match(await call(), {
    status: 403,
    json: {
      reason: 'content_refused',
      message: 'It names a customer.',
      detail: { content: [{ rule: 'customer', where: 'dlp', count: 1 }] },
    },
  })
  const sent = gateway.upstream.seen.length
  for (const [what, answer] of [
    ['another status', says({ allow: true }, 201)],
    ['another member', says({ allow: true, unless: 'it rains' })],
    ['a word', says({ allow: 'true' })],
    ['no answer in time', () => {}],
    ['a broken connection', (res: ServerResponse) => void res.destroy()],
    ['too much', says({ allow: true, reason: 'x'.repeat(70_000) })],
  ] as const) {
    service.answer = answer
    t.match(await call(), { status: 500, json: { reason: 'plugin_failed' } }, what)
  }
  service.answer = says({ allow: true })
  const long = { messages: [{ role: 'user', content: 'x'.repeat(2_000) }] }
  t.match(await call(long), { status: 500, json: { reason: 'plugin_failed' } }, 'more than max_kib')
  t.equal(gateway.upstream.seen.length, sent, 'nothing of them was sent')

  // A stream is judged as a whole, and passes as it came.
  const [dialect] = DELTAS as readonly [DeltaDialect]
  const chunks = events(dialect, ['hel', 'lo ', 'there'])
  gateway.upstream.answer = (res) => {
    res.setHeader('content-type', 'text/event-stream').end(Buffer.concat(chunks))
  }
  service.asked.length = 0
  t.equal((await call({ stream: true })).text, Buffer.concat(chunks).toString())
  t.match(service.asked[1], { where: 'response', texts: ['hello there'] }, 'joined')
  await gateway.close(0)
  const rows = await gateway.rows()
  t.match(rows.find(({ action }) => action === 'config.loaded')?.detail.content, [
    { services: [{ name: 'dlp', url: service.url, where: ['request', 'response'] }] },
  ])
  const denied = rows.filter(({ status }) => status === 'denied')
  t.equal(denied.length, 8)
  t.match(denied[1]?.detail, {
    reason: 'plugin_failed',
    content: { verdict: 'failed', findings: [] },
    authority: { checks: [{ name: 'content', verdict: 'failed' }] },
  })
})
