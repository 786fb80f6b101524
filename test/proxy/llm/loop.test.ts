import t from 'tap'
import { nextSteps } from '../../../proxy/wiring/next-steps.ts'
import { readIdentity } from '../../../scripts/client/identity/identity.ts'
import { startSidecar } from '../../../scripts/client/sidecar.ts'
import { clientSession } from '../../../scripts/client/signing/session.ts'
import { freePort } from '../../../scripts/free-port.ts'
import { identityDirectory } from '../../support/clients/identity.ts'
import { CHAT, testGateway } from '../../support/gateway.ts'

await t.test('RFC 8586 a gateway whose provider is its own sidecar says so, once round', async (t) => {
  const port = await freePort()
  const provided = (name: string, base: string) =>
    `  - {name: ${name}, dialect: openai, base_url: "${base}", api_key: sk-1, models: ["${name}*"]}\n`
  const own = await freePort()
  const files = {
    '50-llm.yaml': [
      'plugin: llm\nproviders:\n',
      provided('round', `http://127.0.0.1:${port}/v1`),
      provided('honest', 'UPSTREAM/v1'),
      provided('itself', `https://localhost:${own}/v1`),
    ].join(''),
  }
  const gateway = await testGateway(t, { files, settings: { MCP_PROXY_LISTEN: `127.0.0.1:${own}` } })
  const session = clientSession(readIdentity(await identityDirectory(t, gateway)), { now: Date.now })
  const sidecar = await startSidecar(session, '127.0.0.1', port)
  t.teardown(async () => {
    await sidecar.close(0)
    await session.close()
  })
  const bot = await gateway.enroll('caller', ['llm.chat'])
  const call = (model: string, headers: Record<string, string> = {}) =>
    gateway.call(bot, 'POST', '/v1/chat/completions', { headers, body: { ...CHAT, model } })
  t.match(await call('round-1'), {
    status: 502,
    json: { reason: 'provider_failed', message: /has been through this gateway already/ },
  })
  const decided = await gateway.rows({ action: 'egress_llm_chat', status: 'allowed' })
  t.equal(decided.length, 2, 'the call and the one that came back, and no third')
  t.equal(
    (await call('honest', { 'cdn-loop': 'other; v=1.1, cdn.example' })).status,
    200,
    'others are no loop',
  )
  const [chain = ''] = [gateway.upstream.seen.at(-1)?.headers['cdn-loop']].flat()
  t.match(chain, /^other; v=1\.1, cdn\.example, sallyport-[0-9a-f]{32}$/)
  t.equal((await call('honest', { 'cdn-loop': 'sallyport, sallyport-0123' })).status, 200)
  t.equal((await call('honest', { 'cdn-loop': 'x'.repeat(5_000) })).status, 200)
  t.match(gateway.upstream.seen.at(-1)?.headers['cdn-loop'], /^sallyport-/)
  t.match(await call('honest', { 'cdn-loop': chain }), { status: 508, json: { reason: 'loop_detected' } })
  t.equal((await call('honest')).status, 200, 'and nobody is locked out by it')
  const steps = await nextSteps(gateway.settings, gateway)
  t.match(steps, `the provider itself is this gateway itself (https://localhost:${own}/v1)`)
  t.notMatch(steps, /the provider (round|honest) is/)
})
