import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'
import t, { type Test } from 'tap'
import { META_KEYS } from '../../proxy/mcp/protocol/versions.ts'
import { endPresence } from '../support/db/postgres/replica.ts'
import { twoStages } from '../support/db/postgres/stages.ts'
import { agentOf, CHAT, type Identity } from '../support/gateway.ts'
import { openStream } from '../support/mcp/open-stream.ts'
import { sse } from '../support/mcp/raw-upstream.ts'
import { type Stage, tool, toolServer } from '../support/mcp/stage.ts'

/** What is promised for calls that are open (M-06). ms. */
const CUT_MS = 2_000

/** An LLM stream that has begun and goes on for ever. Resolves when it has ended. */
async function llmStream(t: Test, stage: Stage, who: Identity): Promise<{ readonly over: Promise<unknown> }> {
  stage.upstream.answer = (res) => {
    res.setHeader('content-type', 'text/event-stream')
    const more = setInterval(() => res.write('data: {"choices":[{"delta":{"content":"x"}}]}\n\n'), 50)
    res.once('close', () => clearInterval(more))
  }
  const agent = agentOf(stage.ca, who)
  t.teardown(() => agent.destroy())
  const req = httpsRequest(`${stage.url}/v1/chat/completions`, {
    method: 'POST',
    agent,
    headers: { 'content-type': 'application/json' },
  })
  req.on('error', () => {})
  req.end(JSON.stringify({ ...CHAT, stream: true }))
  const [res] = (await once(req, 'response')) as [IncomingMessage]
  res.on('error', () => {})
  const over = new Promise((resolve) => res.once('close', resolve))
  res.resume()
  return { over }
}

/** Takes every capability of a principal, or ends its certificate while that is in its grace. */
const REVOCATIONS = {
  'its set': async (one: Stage, bot: Identity) => (await one.grant(bot, [])).status === 200,
  'its certificate': async (one: Stage, { id }: Identity) => {
    const path = `/v1/admin/agents/${id}`
    const { cert_thumbprint: stolen } = (await one.admin('GET', path)).json
    await one.admin('POST', `${path}/rotate-cert`, {})
    return (await one.admin('DELETE', `${path}/certificates/${stolen}`)).status === 204
  },
  'a stop of it': async (one: Stage, { id }: Identity) =>
    (await one.admin('POST', '/v1/admin/stops', { scope: { principal: id }, reason: 'a leak' })).status ===
    201,
}

for (const [how, deaf, revoked] of [
  ['', false, 'its set'],
  [', and that of its certificate', false, 'its certificate'],
  [', and of a stop of its calls', false, 'a stop of it'],
  [', also where it does not hear of it', true, 'its set'],
] as const) {
  t.test(
    `M-06 what is open or waits at one replica ends within 2 s of its revocation at another${how}`,
    async (t) => {
      const { url, one, other } = await twoStages(t)
      const streaming = await toolServer(t, [tool('stream')], (res) => {
        const send = sse(res)
        const more = setInterval(
          () => send({ jsonrpc: '2.0', method: 'notifications/message', params: {} }),
          50,
        )
        res.once('close', () => clearInterval(more))
      })
      const asking = await toolServer(t, [tool('ask')], (res) => {
        sse(res)({ jsonrpc: '2.0', id: 0, method: 'elicitation/create', params: { message: 'Sure?' } })
        parked = once(res, 'close')
      })
      let parked: Promise<unknown> = Promise.reject(new Error('nothing was asked'))
      parked.catch(() => {})
      const silent = await toolServer(t, [tool('wait')], () => {})
      const bot = await one.enroll('bot', ['llm.chat', 'a.b'])
      const demand = { required_capability: 'a.b' }
      await one.bind(bot, await one.register('streaming', streaming, demand))
      await one.bind(bot, await one.register('silent', silent, demand))
      await one.bind(bot, await one.register('asking', asking, demand))

      const llm = llmStream(t, other, bot)
      const mcp = await openStream(other, bot, 'tools/call', {
        params: { name: 'streaming.stream', arguments: {} },
      })
      await mcp.next()
      const waiting = other.callTool(bot, 'silent.wait')
      while (silent.of('tools/call').length === 0) await new Promise(setImmediate)
      const { over } = await llm
      const _meta = { [META_KEYS.capabilities]: { elicitation: {} } }
      const headers = { accept: 'application/json' }
      const asked = { modern: true, headers, params: { _meta } }
      const question = await other.callTool(bot, 'asking.ask', {}, asked)
      t.match(question.json.result, { resultType: 'input_required' })

      if (deaf) await endPresence(url)
      const since = performance.now()
      t.ok(await REVOCATIONS[revoked](one, bot))
      const took = async (ended: Promise<unknown>) => {
        await ended
        return Math.round(performance.now() - since)
      }
      const all = await Promise.all([took(over), took(mcp.clean), took(waiting), took(parked)])
      t.ok(Math.max(...all) < CUT_MS, `LLM stream, MCP stream, waiting call, question: ${all.join(', ')} ms`)
      t.match((await waiting).json.error, { data: { reason: /revoked|pinned/ } })
    },
  )
}
