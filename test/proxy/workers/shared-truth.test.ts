import { randomUUID } from 'node:crypto'
import t from 'tap'
import { proof, proofSigner } from '../../support/dpop.ts'
import { type Answered, CHAT, type Identity } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { atEachWorker, type Engine, startWorkers, stopped, type Workers } from '../../support/workers.ts'

const PATH = '/v1/chat/completions'
const ENGINES: readonly Engine[] = ['sqlite', 'postgres']

const statusesOf = (answers: readonly Answered[]) => [...new Set(answers.map(({ status }) => status))]

/** Has a DPoP key registered for an agent. */
async function withKey(gateway: Workers, who: Identity) {
  const signer = proofSigner()
  const { status } = await gateway.admin('POST', `/v1/admin/agents/${who.id}/dpop-jwk`, signer.jwk)
  if (status >= 300) throw new Error(`registering a key: ${status}`)
  const { headers } = await gateway.call(who, 'GET', '/v1/models', { headers: { dpop: 'x' } })
  return { signer, nonce: String(headers['dpop-nonce']) }
}

for (const engine of ENGINES) {
  t.test(`${engine}: 100 identical proofs at once over new connections: one is served`, async (t) => {
    const gateway = await startWorkers(t, { engine })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const { signer, nonce } = await withKey(gateway, bot)
    const dpop = proof(signer, { htm: 'POST', htu: gateway.url + PATH, nonce, jti: randomUUID() })
    const asked = { body: CHAT, headers: { dpop } }
    const answers = await Promise.all(
      Array.from({ length: 100 }, () => gateway.call(bot, 'POST', PATH, asked)),
    )
    const served = answers.filter(({ status }) => status === 200).length
    t.equal(served, 1)
    t.equal(gateway.upstream.seen.length, 1)
    const refused = answers.filter(({ status }) => status !== 200)
    t.same([...new Set(refused.map(({ status, json }) => `${status} ${json.reason}`))], ['401 proof_invalid'])
    await stopped(t, gateway)
    const workers = gateway
      .lines()
      .flatMap(({ msg, path, worker }) => (msg === 'request' && path === PATH ? [worker] : []))
    t.equal(new Set(workers).size, 2, 'they came to both')
  })

  t.test(`${engine}: who is revoked is refused with the next call, at each worker`, async (t) => {
    const gateway = await startWorkers(t, { engine })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const chat = () => atEachWorker(gateway, bot, 'POST', PATH, { body: CHAT })
    for (const [capabilities, status] of [
      [[], 403],
      [['llm.chat'], 200],
      [[], 403],
    ] as const) {
      const patched = await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, {
        capabilities,
      })
      t.equal(patched.status, 200)
      t.same(statusesOf(await chat()), [status])
    }
    await stopped(t, gateway)
  })

  t.test(`${engine}: an open stream of a principal that is revoked at another worker is cut`, async (t) => {
    const gateway = await startWorkers(t, { engine })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    gateway.upstream.answer = (res) => {
      res.setHeader('content-type', 'text/event-stream')
      res.write('data: {"choices":[]}\n\n')
    }
    const stream = () =>
      gateway.call(bot, 'POST', PATH, { body: { ...CHAT, stream: true } }).then(
        () => 'ended',
        () => 'cut',
      )
    const streams = [stream(), stream(), stream(), stream()]
    await eventually(
      () => gateway.upstream.seen.length,
      (length) => length === streams.length,
    )
    const patched = await gateway.admin('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, {
      capabilities: [],
    })
    t.equal(patched.status, 200)
    await Promise.all(streams)
    const rows = await stopped(t, gateway)
    const cut = rows.filter(({ status, detail }) => status === 'truncated' && detail.ending === 'revoked')
    t.equal(cut.length, streams.length, 'at whichever worker they were')
  })
}
