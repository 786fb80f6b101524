import { spawnSync } from 'node:child_process'
import { cp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { sampleSecret } from '../../support/content/secrets.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'
import { settledCalls } from '../../support/settled.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'
import { PYTHON, withoutPython } from '../../support/verifiers.ts'

const sallyport = verbsInTurn(t)
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
  const { allowed: watched, ended } = await settledCalls(gateway)
  const found = [{ rule: 'GITHUB_TOKEN', where: 'messages[0]', count: 1 }]
  t.match(watched[1]?.detail, {
    authority: { checks: [{ name: 'content', verdict: 'refuse', shadow: true }] },
    content_shadow: { verdict: 'refuse', findings: found },
  })
  t.notOk(watched[1]?.detail.content)
  const judged = ended.find(({ request_id: id }) => id === watched[2]?.request_id)?.detail.content_shadow
  t.match(judged, { verdict: 'refuse', findings: [{ where: 'choices[0]' }] })

  const next = t.testdir()
  await cp(gateway.pluginsDir, next, { recursive: true })
  await writeFile(join(next, '37-content.yaml'), 'plugin: content\n')
  const env = {
    MCP_PROXY_DATA_DIR: gateway.settings.dataDir,
    MCP_PROXY_DATABASE_URL: gateway.settings.databaseUrl,
  }
  const rehearsed = await sallyport(['rehearse', '--config', next], env)
  t.match(rehearsed, { code: 3, err: '', out: /^would be refused: 1$/m })
  t.match(rehearsed.out, /acme::bot +gpt-\S+ +content_refused +1 /)

  await writeFile(join(gateway.pluginsDir, '37-content.yaml'), 'plugin: content\n')
  t.equal(await gateway.reload(), true)
  t.equal((await call(SECRET)).status, 403, 'and so it is')
  const file = join(next, 'rows.ndjson')
  await writeFile(file, (await gateway.admin('GET', '/v1/admin/audit/export')).text)
  const verified = await sallyport(['verify', file, '--authority'], env)
  t.match(verified, { code: 0, out: /recomputed/ }, verified.out + verified.err)
  if (withoutPython) return
  const theirs = spawnSync('python3', [PYTHON, file, '--authority'], { encoding: 'utf8' })
  t.equal(theirs.status, 0, theirs.stdout)
})
