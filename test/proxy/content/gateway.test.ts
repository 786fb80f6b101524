import t from 'tap'
import { sampleSecret } from '../../support/content/secrets.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'

const PATH = '/v1/chat/completions'
const REQUESTS = `plugin: content
secrets: { where: [request, tool_arguments] }
`
const SECRET = sampleSecret('GITHUB_TOKEN')
const asking = (content: string) => ({ ...CHAT, messages: [{ role: 'user', content }] })

await t.test('a request with a secret is refused, recorded without it, and nothing is sent', async (t) => {
  const gateway = await testGateway(t, { files: { '37-content.yaml': REQUESTS } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await gateway.call(bot, 'POST', PATH, { body: asking('hello') })).status, 200)
  for (const [path, body] of [
    [PATH, asking(`my key is ${SECRET}`)],
    ['/v1/messages', { ...asking(SECRET), model: 'claude-sonnet-5', max_tokens: 9 }],
    ['/v1/responses', { model: CHAT.model, input: [{ role: 'user', content: SECRET }] }],
  ] as const) {
    const refused = await gateway.call(bot, 'POST', path, { body })
    t.match(refused, {
      status: 403,
      headers: { 'x-should-retry': 'false' },
      json: { reason: 'content_refused', detail: { content: [{ rule: 'GITHUB_TOKEN', count: 1 }] } },
    })
    t.notOk(JSON.stringify(refused.json).includes(SECRET))
  }
  t.equal(gateway.upstream.seen.length, 1, 'nothing of a refused call is sent')
  await gateway.close(0)
  const rows = await gateway.rows()
  t.match(rows.find(({ action }) => action === 'config.loaded')?.detail, {
    checks: [{ name: 'content', digest: /^[0-9a-f]{64}$/ }],
    content: [{ rules_digest: /^[0-9a-f]{64}$/, shadow: false, services: [] }],
  })
  const [passed] = rows.filter(({ status }) => status === 'allowed')
  t.match(passed?.detail.content, { verdict: 'pass', findings: [] })
  t.match(
    rows.filter(({ status }) => status === 'denied').map(({ detail }) => detail),
    ['messages[0]', 'messages[0]', 'input[0]'].map((where) => ({
      reason: 'content_refused',
      refused_by: 'content',
      authority: { checks: [{ name: 'content', verdict: 'refuse' }] },
      content: { verdict: 'refuse', findings: [{ rule: 'GITHUB_TOKEN', where, count: 1 }] },
    })),
  )
})
