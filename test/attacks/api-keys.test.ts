import t from 'tap'
import { byCorporateCa } from '../support/foreign.ts'
import { CHAT, type Identity, type TestGateway, testGateway } from '../support/gateway.ts'

interface Keyed {
  readonly who: Identity
  readonly apiKey: string
}

async function keyed(gateway: TestGateway, name: string): Promise<Keyed> {
  const { caPem, certPem, keyPem } = await byCorporateCa(name)
  await gateway.admin('POST', '/v1/admin/ca/attach', { ca_pem: caPem, kind: 'organisation' })
  const { json } = await gateway.admin('POST', '/v1/admin/agents/enroll/byoca', {
    agent_name: name,
    capabilities: ['llm.chat'],
    cert_pem: certPem,
    private_key_pem: keyPem,
  })
  return { who: { id: json.agent_id, cert: certPem, key: keyPem }, apiKey: json.api_key }
}

const chat = async (gateway: TestGateway, who: Identity, apiKey: string): Promise<number> => {
  const headers = { authorization: `Bearer ${apiKey}` }
  return (await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT, headers })).status
}

/** Another secret behind the same look-up id. */
const guess = (apiKey: string, n: number): string =>
  apiKey.slice(0, 20) + String(n).padStart(apiKey.length - 20, 'x')

await t.test('§5.3 the API key of a deactivated agent is not inherited by who takes its name', async (t) => {
  const gateway = await testGateway(t)
  const { who, apiKey } = await keyed(gateway, 'bot')
  t.equal(await chat(gateway, who, apiKey), 200)
  await gateway.admin('DELETE', `/v1/admin/agents/${who.id}`)
  const again = await gateway.enroll('bot', ['llm.chat'])
  t.equal(await chat(gateway, again, apiKey), 401)
})

await t.test('T15 many requests at once with one right API key all pass', async (t) => {
  const gateway = await testGateway(t)
  const { who, apiKey } = await keyed(gateway, 'bot')
  const crowd = await Promise.all(Array.from({ length: 20 }, () => chat(gateway, who, apiKey)))
  t.strictSame(new Set(crowd), new Set([200]))
})

await t.test('T15 an agent that guesses at its own API key keeps no other agent waiting', async (t) => {
  const gateway = await testGateway(t)
  const [eve, bot] = [await keyed(gateway, 'eve'), await keyed(gateway, 'bot')]
  const guesses = Array.from({ length: 20 }, (_, n) => chat(gateway, eve.who, guess(eve.apiKey, n)))
  const served = await chat(gateway, bot.who, bot.apiKey)
  t.equal(served, 200)
  const answers = new Set(await Promise.all(guesses))
  t.ok(answers.has(401) && !answers.has(200), 'none of the guesses passed')
})
