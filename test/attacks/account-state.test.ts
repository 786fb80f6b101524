import t from 'tap'
import { idempotencyKeys } from '../../proxy/llm/upstream/idempotency-keys.ts'
import { CHAT, PLUGIN_FILES, testGateway } from '../support/gateway.ts'
import { holderOf } from '../support/permit.ts'

const STRICT = `${PLUGIN_FILES['50-llm.yaml']}    refuse_members: [container]
  - name: shared
    dialect: openai
    base_url: UPSTREAM/v1
    api_key: sk-upstream-shared
    models: ["shared-*"]
    refuse_members: [previous_response_id, conversation, store, prompt]
`

const gateway = await testGateway(t, { files: { '50-llm.yaml': STRICT } })
const alice = await gateway.enroll('alice', ['llm.chat'])
const bob = await gateway.enroll('bob', ['llm.chat'])

/** A provider that honours idempotency keys, for its account alone. */
const answers = new Map<string, string>()
gateway.upstream.answer = (res, { headers, body }) => {
  const key = String(headers['idempotency-key'])
  const answer = answers.get(key) ?? JSON.stringify({ echo: body.toString() })
  answers.set(key, answer)
  res.setHeader('content-type', 'application/json').end(answer)
}

const said = async (who: typeof alice, prompt: string, key: string): Promise<string> => {
  const body = { ...CHAT, messages: [{ role: 'user', content: prompt }] }
  const headers = { 'idempotency-key': key }
  return (await gateway.call(who, 'POST', '/v1/chat/completions', { body, headers })).text
}

await t.test('H11 no agent gets the answer to another’s prompt by its idempotency key', async (t) => {
  t.match(await said(alice, 'the secret plan', 'k-1'), 'the secret plan')
  t.notMatch(await said(bob, 'hello', 'k-1'), 'the secret plan')
  t.match(await said(alice, 'tried once more', 'k-1'), 'the secret plan', 'a retry of its own is one')
  t.notMatch(await said(alice, 'another', 'k-2'), 'the secret plan')
  const sent = gateway.upstream.seen.map(({ headers }) => String(headers['idempotency-key']))
  t.equal(new Set(sent).size, 3)
  // Nor by one that was made to look like the other's: a provider never sees a caller's own.
  t.notMatch(await said(bob, 'hello', String(sent[0])), 'the secret plan')
  t.ok(sent.every((key) => /^[\w-]{43}$/.test(key)))
})

await t.test('H11 the key of one principal is the same wherever the secret is, and no other’s', (t) => {
  const [here, there, other] = [1, 1, 2].map((byte) => idempotencyKeys(Buffer.alloc(32, byte)))
  const holder = holderOf('llm.chat')
  t.equal(here?.(holder, 'k'), there?.(holder, 'k'), 'at another replica, or after a restart')
  const others = [
    other?.(holder, 'k'),
    here?.({ ...holder, id: 'acme::bo' }, 'tk'),
    here?.({ ...holder, type: 'workload' }, 'k'),
    here?.(holder, 'K'),
  ]
  t.equal(new Set([...others, here?.(holder, 'k')]).size, 5)
  t.end()
})

await t.test('H11 an operator keeps what a provider holds for its account from callers', async (t) => {
  for (const member of ['previous_response_id', 'conversation', 'store', 'prompt']) {
    const body = { model: 'shared-1', input: 'hi', [member]: 'x' }
    const answer = await gateway.call(bob, 'POST', '/v1/responses', { body })
    t.match(answer, { status: 400, json: { reason: 'member_refused', detail: { member } } })
  }
  const honest = { model: 'shared-1', input: 'hi', prompt_cache_key: 'k', user: 'u', safety_identifier: 's' }
  t.equal((await gateway.call(bob, 'POST', '/v1/responses', { body: honest })).status, 200)
})

await t.test('H11 what is kept at a provider cannot be fetched or deleted here', async (t) => {
  for (const path of [
    'responses/resp_1',
    'conversations/conv_1',
    'files',
    'batches',
    'chat/completions/c_1',
  ]) {
    for (const method of ['GET', 'DELETE']) {
      const { status } = await gateway.call(bob, method, `/v1/${path}`)
      t.ok(status === 404 || status === 405, `${method} ${path}: ${status}`)
    }
  }
})
