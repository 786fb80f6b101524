import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { sampleSecret } from '../../support/content/secrets.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'

const SECRET = sampleSecret('GITHUB_TOKEN')
const asking = (content: string) => ({ body: { ...CHAT, messages: [{ role: 'user', content }] } })

await t.test('what only watches is in the rows, and a rehearsal says what it would refuse', async (t) => {
  const gateway = await testGateway(t, { files: { '37-content.yaml': 'plugin: content\nshadow: true\n' } })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const call = (text: string) => gateway.call(bot, 'POST', '/v1/chat/completions', asking(text))
  t.equal((await call('hello')).status, 200)
  t.equal((await call(SECRET)).status, 200, 'it goes on')
  gateway.upstream.answer = (res) => {
    const choices = [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: SECRET } }]
    res.setHeader('content-type', 'application/json').end(JSON.stringify({ model: CHAT.model, choices }))
  }
  t.equal((await call('hello')).status, 200, 'and so does an answer')
  const rows = await gateway.rows()
  const watched = rows.filter(({ status }) => status === 'allowed')
  const found = [{ rule: 'GITHUB_TOKEN', where: 'messages[0]', count: 1 }]
  t.match(watched[1]?.detail, {
    authority: { checks: [{ name: 'content', verdict: 'refuse', shadow: true }] },
    content_shadow: { verdict: 'refuse', findings: found },
  })
  t.notOk(watched[1]?.detail.content)
  const outcomes = rows.filter(({ detail }) => detail.http_status === 200)
  t.match(outcomes.at(-1)?.detail.content_shadow, { verdict: 'refuse', findings: [{ where: 'choices[0]' }] })

  await writeFile(join(gateway.pluginsDir, '37-content.yaml'), 'plugin: content\n')
  const { json, status } = await gateway.admin('POST', '/v1/admin/rehearsals', { change: { config: true } })
  t.equal(status, 200, JSON.stringify(json))
  t.match(JSON.stringify(json), /content_refused/)
})
