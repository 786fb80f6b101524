import t from 'tap'
import { CHAT, type TestGateway, testGateway } from '../support/gateway.ts'
import { filesStage } from '../support/mcp/stage.ts'
import { eventually } from '../support/settled.ts'

const REVOKED = { reason: 'authority_revoked' }

const REVOCATIONS = [
  [
    'its capability',
    (g: TestGateway, id: string) =>
      g.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, { capabilities: [] }),
  ],
  ['its principal', (g: TestGateway, id: string) => g.admin('DELETE', `/v1/admin/agents/${id}`)],
] as const

for (const [what, revoke] of REVOCATIONS) {
  await t.test(
    `B2 a call that waits for its provider is refused when ${what} is revoked, and the provider is hung up on`,
    async (t) => {
      const gateway = await testGateway(t)
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const eve = await gateway.enroll('eve', ['llm.chat'])
      const hungUp = Promise.withResolvers<void>()
      const held: (() => void)[] = []
      // The first one never answers; the others do when they are told to.
      gateway.upstream.answer = (res) => {
        if (gateway.upstream.seen.length === 1) res.once('close', () => hungUp.resolve())
        else held.push(() => res.setHeader('content-type', 'application/json').end('{}'))
      }
      const waiting = gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
      await eventually(
        async () => gateway.upstream.seen.length,
        (seen) => seen === 1,
      )
      const kept = gateway.call(eve, 'POST', '/v1/chat/completions', { body: CHAT })
      await eventually(
        async () => held.length,
        (waiting) => waiting === 1,
      )

      await revoke(gateway, bot.id)
      const { status, json } = await waiting
      t.match({ status, json }, { status: 403, json: REVOKED })
      await hungUp.promise
      held[0]?.()
      t.equal((await kept).status, 200, 'who still holds it has the answer')
      await gateway.close()
      const outcomes = await gateway.rows({ principal: bot.id, status: 'error' })
      t.match(outcomes, [{ action: 'egress_llm_chat', detail: { ...REVOKED, http_status: 403 } }])
    },
  )
}

await t.test(
  'B2 a call that waits for an MCP server is refused when its capability is revoked, and the server hung up on',
  async (t) => {
    const hungUp = Promise.withResolvers<void>()
    const reached = Promise.withResolvers<void>()
    const { stage, files, bot } = await filesStage(t, ['files.use'], (res) => {
      reached.resolve()
      res.once('close', () => hungUp.resolve())
    })
    await stage.bind(bot, files)
    const waiting = stage.callTool(bot, 'files.read')
    await reached.promise
    await stage.grant(bot, [])
    const { json } = await waiting
    t.match(json.error, { code: -32005, data: REVOKED })
    await hungUp.promise
    await stage.close()
    const outcomes = await stage.rows({ principal: bot.id, status: 'error' })
    t.match(outcomes, [{ action: 'mcp_tools_call', tool: 'files.read', detail: REVOKED }])
  },
)
