import t from 'tap'
import { hangupFromSignal } from '../../../plugins/call-authority.ts'
import { type ContentJudge, type JudgedMessage, openContentJudge } from '../../../plugins/content/judge.ts'
import { contentOptions } from '../../../plugins/content/options.ts'
import { RULE_NAMES } from '../../../plugins/content/rules.ts'
import { SAMPLE_SECRETS, sampleSecret } from '../../support/content/secrets.ts'

const MESSAGE: JudgedMessage = {
  ...{ place: 'request', isJson: true, requestId: 'req_1', client: null, model: 'm', tool: null },
  principal: { id: 'acme::bot', type: 'agent' },
  hangup: hangupFromSignal(new AbortController().signal),
}

const open = (options: object = {}): Promise<ContentJudge> => openContentJudge(contentOptions.parse(options))

const judged = async (judge: ContentJudge, value: unknown, more: Partial<JudgedMessage> = {}) => {
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return (await judge.judge(Buffer.from(text), { ...MESSAGE, ...more })).verdict
}

const inChat = (text: string) => ({
  model: 'm',
  messages: [
    { role: 'user', content: 'hello' },
    { role: 'user', content: `it is:\n${text}\nkeep it` },
  ],
})

const judge = await open()
t.teardown(() => judge.close())

await t.test('each of sixty secrets is found, as it is and however JSON may write it', async (t) => {
  t.equal(SAMPLE_SECRETS.length, 60)
  for (const { rule, text } of SAMPLE_SECRETS) {
    const found = { verdict: 'refuse', findings: [{ rule, where: 'messages[1]', count: 1 }] }
    t.match(await judged(judge, inChat(text)), found, rule)
    // As the arguments of a tool: JSON as a text in JSON.
    t.match(await judged(judge, inChat(JSON.stringify({ key: text }))), found, `${rule} in a text of JSON`)
    const escaped = Array.from(text, (one) => one)
      .map((one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join('')
    const written = JSON.stringify(inChat('HERE')).replace('HERE', escaped)
    t.match(await judged(judge, written), found, `${rule} in escapes`)
  }
})

await t.test('a secret is found wherever it stands, and the place names no value', async (t) => {
  const text = sampleSecret('GITHUB_TOKEN')
  const where = async (value: unknown): Promise<unknown> => (await judged(judge, value)).findings[0]?.where
  t.equal(await where({ system: [{ text: 'a' }, { text }] }), 'system[1]')
  t.equal(await where({ params: { name: 't', arguments: { a: { b: text } } } }), 'params.arguments')
  t.equal(await where({ result: { content: [{ type: 'text', text }] } }), 'result.content[0]')
  t.equal(await where({ [text]: 1 }), '*', 'a name may be one itself')
  t.equal(await where({ a: 1, metadata: { [text]: { x: text } } }), 'metadata.*')
  t.equal(await where(`{"a":"${text}","a":"b"}`), 'a', 'of a member that stands twice')
  t.equal((await judged(judge, `no JSON: ${text}`, { isJson: false })).findings[0]?.where, 'text')
})

await t.test('no text says itself that it is not judged', async (t) => {
  const text = sampleSecret('GITHUB_TOKEN')
  t.equal((await judged(judge, inChat(`secretlint-disable\n${text}`))).verdict, 'refuse')
})

await t.test('allowed values and rules that are off pass, and others do not', async (t) => {
  const [first, second] = SAMPLE_SECRETS.filter(({ rule }) => rule === 'GITHUB_TOKEN')
  const key = sampleSecret('AWSSecretAccessKey')
  const lenient = await open({
    secrets: { allow: [first?.text, key.slice(-40)], off: ['SLACK_TOKEN'] },
  })
  const verdict = async (text = '') => (await judged(lenient, inChat(text))).verdict
  t.equal(await verdict(first?.text), 'pass')
  t.equal(await verdict(key), 'pass', 'the value alone, without its words')
  t.equal(await verdict(second?.text), 'refuse')
  t.equal(await verdict(sampleSecret('SLACK_TOKEN')), 'pass')
  await lenient.close()
})

await t.test('with observe the findings are told and nothing is refused', async (t) => {
  const watching = await open({ secrets: { action: 'observe', rules: ['GITHUB_TOKEN'] } })
  const found = await judged(watching, inChat(sampleSecret('GITHUB_TOKEN')))
  t.match(found, { verdict: 'pass', findings: [{ rule: 'GITHUB_TOKEN', where: 'messages[1]', count: 1 }] })
  t.not(watching.digest, judge.digest, 'the digest is of the rules')
  await watching.close()
})

await t.test('every rule can be switched on, and a name that is none is refused', async (t) => {
  const all = await open({ secrets: { rules: RULE_NAMES } })
  t.match(await judged(all, inChat('https://user:passw0rd1@host.com/')), { verdict: 'refuse' })
  await all.close()
  t.notOk(contentOptions.safeParse({ secrets: { rules: ['NONE'] } }).success)
})

await t.test('a text that is not judged in time has failed, and the next one is judged', async (t) => {
  const hurried = await openContentJudge(contentOptions.parse({}), 50)
  const long = Array.from({ length: 20_000 }, (_, n) => `ghp_${n} sk-${n}`)
  const late = await hurried.judge(Buffer.from(JSON.stringify(long)), MESSAGE)
  t.match(late, { verdict: { verdict: 'failed', findings: [] }, cause: /did not answer within 50 ms/ })
  t.equal((await judged(judge, inChat(sampleSecret('GITHUB_TOKEN')))).verdict, 'refuse')
  await hurried.close()
})
