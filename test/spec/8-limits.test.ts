import t from 'tap'
import { testGateway } from '../support/gateway.ts'

const tokens = (count: number): string[] => Array.from({ length: count }, (_, i) => `token_${i}`)

await t.test('§8 64 tokens of 64 characters are accepted, at create and at edit time', async (t) => {
  const gateway = await testGateway(t)
  const full = tokens(64).map((token) => token.padEnd(64, 'x'))
  const { status } = await gateway.admin('POST', '/v1/admin/agents', {
    agent_name: 'full',
    capabilities: full,
  })
  t.equal(status, 201)
  const { json } = await gateway.admin('PATCH', '/v1/admin/agents/acme::full/capabilities', {
    capabilities: full,
  })
  t.strictSame(json.capabilities, full)
})

await t.test(
  '§8 a token or a count beyond the limits is 422 at create and at edit time, each bad entry named',
  async (t) => {
    const gateway = await testGateway(t)
    await gateway.enroll('bot', [])
    const bad: [unknown, string][] = [
      [tokens(65), 'capabilities'],
      [['x'.repeat(65)], 'capabilities[0]'],
      [['ok', 'Upper'], 'capabilities[1]'],
      [['9digit'], 'capabilities[0]'],
      [['.dot'], 'capabilities[0]'],
      [['a-b'], 'capabilities[0]'],
      [['a b'], 'capabilities[0]'],
      [['llm.chat\n'], 'capabilities[0]'],
      [[''], 'capabilities[0]'],
      [[null], 'capabilities[0]'],
      [[['llm.chat']], 'capabilities[0]'],
      ['llm.chat', 'capabilities'],
      [{ 0: 'llm.chat', length: 1 }, 'capabilities'],
    ]
    for (const [capabilities, field] of bad) {
      const created = await gateway.admin('POST', '/v1/admin/agents', { agent_name: 'x', capabilities })
      const patched = await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', {
        capabilities,
      })
      for (const { status, json } of [created, patched]) {
        t.equal(status, 422, JSON.stringify(capabilities).slice(0, 40))
        t.equal(json.detail.errors[0].field, field)
      }
    }
    t.equal((await gateway.admin('GET', '/v1/admin/agents')).json.length, 1, 'none of them was made')
  },
)
