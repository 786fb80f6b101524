import fc from 'fast-check'
import t from 'tap'
import {
  capabilityOf,
  type MinProof,
  type ProofDemands,
  type ToolDemands,
} from '../../../../db/ledger/authority/rule.ts'
import { reducesRequirements } from '../../../../proxy/admin/mcp/body.ts'
import { testGateway } from '../../../support/gateway.ts'
import { filesStage, mcpStage, tool, toolServer } from '../../../support/mcp/stage.ts'
import { as, operatorNamed, ownerOnTheMachine } from '../../../support/operators.ts'

const demands = (
  required_capability: string | null,
  tool_capabilities: Record<string, string> = {},
): ToolDemands => ({ required_capability, tool_capabilities })

/** Demands that ask every caller for a certificate. */
const CERTIFICATE: ProofDemands = { min_proof: 'certificate', tool_min_proof: {} }

await t.test('a change lowers what is demanded where a tool is opened by a set that did not open it', (t) => {
  const changes: readonly (readonly [ToolDemands, ToolDemands, boolean, string])[] = [
    [demands('a'), demands(null), true, 'nothing is demanded any more'],
    [demands('a'), demands('b'), true, 'another one is demanded: who holds that one could not call'],
    [demands(null), demands('a'), false, 'something is demanded where nothing was'],
    [demands('a'), demands('a'), false, 'nothing changes'],
    [demands('a', { read: 'b' }), demands('a'), true, 'a tool of its own falls back'],
    [demands('a'), demands('a', { read: 'b' }), true, 'a tool gets its own instead'],
    [demands(null), demands(null, { read: 'b' }), false, 'a tool gets its own where nothing was demanded'],
    [demands('a', { read: 'a' }), demands('a'), false, 'a tool falls back on the same'],
    [demands('a', { read: 'b' }), demands('b', { read: 'b' }), true, 'all others are opened'],
    [demands(null, { read: 'b' }), demands('b'), false, 'all others demand what one did'],
    [demands('a'), demands('a', { constructor: 'b' }), true, 'a tool called as a member of any object'],
  ]
  for (const [before, after, lowers, name] of changes)
    t.equal(reducesRequirements({ ...CERTIFICATE, ...before }, { ...CERTIFICATE, ...after }), lowers, name)
  t.end()
})

await t.test('a change lowers what is demanded where a tool, or all others, take a weaker proof', (t) => {
  const proofs = (min_proof: MinProof, tool_min_proof: Record<string, MinProof> = {}) => ({
    ...demands('a'),
    ...{ min_proof, tool_min_proof },
  })
  const changes = [
    [proofs('certificate'), proofs('key'), true, 'a key suffices'],
    [proofs('key'), proofs('none'), true, 'a token suffices'],
    [proofs('none'), proofs('certificate'), false, 'a certificate is asked for'],
    [proofs('key', { read: 'none' }), proofs('key'), false, 'a tool asks for as much as the others'],
    [proofs('none', { read: 'key' }), proofs('none'), true, 'a tool falls back on less'],
    [
      proofs('certificate'),
      proofs('certificate', { constructor: 'key' as MinProof }),
      true,
      'a tool called as a member',
    ],
    [proofs('none', { read: 'key' }), proofs('key', { read: 'key' }), false, 'all others ask for more'],
    [proofs('none', { read: 'key' }), proofs('key', { read: 'none' }), true, 'more of all, less of one'],
  ] as const
  for (const [before, after, lowers, name] of changes)
    t.equal(reducesRequirements(before, after), lowers, name)
  t.end()
})

const TOOLS = ['read', 'write', 'constructor', '__proto__', 'other']
const TOKENS = ['a', 'b', 'c']
/** Whom it may concern: everybody who holds something. */
const SETS = [['a'], ['b'], ['c'], ['a', 'b'], ['a', 'c'], ['b', 'c'], ['a', 'b', 'c']]

const opens = (set: readonly string[], of: ToolDemands, name: string): boolean => {
  const demanded = capabilityOf(of, name)
  return demanded === null || set.includes(demanded)
}

await t.test('whatever the change, it lowers exactly where some set opens more than before', (t) => {
  const own = fc
    .uniqueArray(fc.tuple(fc.constantFrom(...TOOLS.slice(0, -1)), fc.constantFrom(...TOKENS)), {
      selector: ([name]) => name,
    })
    .map((entries) => {
      const map: Record<string, string> = Object.create(null)
      for (const [name, token] of entries) map[name] = token
      return map
    })
  const some = fc.record({
    required_capability: fc.option(fc.constantFrom(...TOKENS)),
    tool_capabilities: own,
  })
  fc.assert(
    fc.property(some, some, (before, after) => {
      const more = TOOLS.some((name) =>
        SETS.some((set) => !opens(set, before, name) && opens(set, after, name)),
      )
      return reducesRequirements({ ...CERTIFICATE, ...before }, { ...CERTIFICATE, ...after }) === more
    }),
    { numRuns: 2_000 },
  )
  t.end()
})

const TENDER = ['admin.read', 'admin.tools']

await t.test(
  'who lowers what a server demands holds admin.grant as well; who raises it does not',
  async (t) => {
    const { stage, files, server } = await filesStage(t, [])
    const path = `/v1/admin/mcp-resources/${files.resource_id}`
    const tender = as(stage, await operatorNamed(stage, 'tender', TENDER))
    const granter = as(stage, await operatorNamed(stage, 'granter', [...TENDER, 'admin.grant']))
    const lowering: readonly object[] = [
      { required_capability: null },
      { required_capability: 'files.other' },
      { tool_capabilities: {} },
      { tool_capabilities: null },
      { tool_capabilities: { write: 'files.write', read: 'files.read' } },
      { enabled: false, required_capability: null },
    ]
    for (const body of lowering) {
      const refused = await tender('PATCH', path, body)
      t.equal(refused.status, 403, JSON.stringify(body))
      t.equal(refused.json.detail.required_capability, 'admin.grant')
    }
    const { json: same } = await stage.admin('GET', path)
    t.equal(same.required_capability, 'files.use')
    t.same(same.tool_capabilities, { write: 'files.write' })
    const denied = await stage.rows({ principal: 'acme::operator::tender', status: 'denied' })
    t.equal(denied.length, lowering.length, 'each refusal is a row')
    t.same([...new Set(denied.map(({ action }) => action))], ['mcp_resource.updated'])
    // The server itself is none of it: that is what admin.tools is for.
    for (const body of [
      { enabled: false },
      { enabled: true },
      { description: 'Files.' },
      { name: 'papers' },
      { endpoint_url: `${server.url}?again` },
      { required_capability: 'files.use' },
    ])
      t.equal((await tender('PATCH', path, body)).status, 200, JSON.stringify(body))
    t.equal((await granter('PATCH', path, { required_capability: null, tool_capabilities: {} })).status, 200)
    for (const body of [{ tool_capabilities: { read: 'files.read' } }, { required_capability: 'files.use' }])
      t.equal((await tender('PATCH', path, body)).status, 200, `raised: ${JSON.stringify(body)}`)
  },
)

await t.test('what lowers the demands of a server is a change of the kind grant: it waits', async (t) => {
  const stage = await mcpStage(t, {
    files: { '70-operators.yaml': 'plugin: operators\ntwo_person: [grant]\n' },
  })
  const files = await stage.register('files', await toolServer(t, [tool('read')]), {
    required_capability: 'files.use',
  })
  const path = `/v1/admin/mcp-resources/${files.resource_id}`
  const held = [...TENDER, 'admin.grant']
  const alice = as(stage, await operatorNamed(stage, 'alice', held))
  const bob = as(stage, await operatorNamed(stage, 'bob', held))
  const granter = as(stage, await operatorNamed(stage, 'granter', ['admin.read', 'admin.grant']))
  t.equal((await alice('PATCH', path, { tool_capabilities: { read: 'files.read' } })).status, 202)
  t.equal((await alice('PATCH', path, { description: 'Files.' })).status, 200, 'what lowers nothing does not')
  const proposed = await alice('PATCH', path, { required_capability: null })
  t.equal(proposed.status, 202, proposed.text)
  const { proposal_id: id } = proposed.json
  t.same((await bob('GET', `/v1/admin/proposals/${id}`)).json.capabilities, ['admin.tools', 'admin.grant'])
  const half = await granter('POST', `/v1/admin/proposals/${id}/confirm`)
  t.equal(half.json.detail.required_capability, 'admin.tools', 'who confirms it holds both')
  t.equal((await bob('POST', `/v1/admin/proposals/${id}/confirm`)).json.required_capability, null)
  t.equal((await alice('PATCH', path, { required_capability: 'files.use' })).status, 200, 'raised at once')
})

await t.test('where only tools needs two people, each change of a server waits', async (t) => {
  const gateway = await testGateway(t, {
    files: { '70-operators.yaml': 'plugin: operators\ntwo_person: [tools]\n' },
    settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' },
  })
  const alice = as(gateway, await ownerOnTheMachine(gateway, 'alice'))
  const bob = as(gateway, await ownerOnTheMachine(gateway, 'bob'))
  const body = { name: 'files', endpoint_url: 'http://127.0.0.1:9/mcp', required_capability: 'files.use' }
  const proposed = await alice('POST', '/v1/admin/mcp-resources', body)
  t.equal(proposed.status, 202, proposed.text)
  const made = await bob('POST', `/v1/admin/proposals/${proposed.json.proposal_id}/confirm`)
  t.equal(made.json.name, 'files', made.text)
  const path = `/v1/admin/mcp-resources/${made.json.resource_id}`
  for (const change of [{ enabled: false }, { required_capability: null }])
    t.equal((await alice('PATCH', path, change)).status, 202, JSON.stringify(change))
  t.equal((await alice('DELETE', path)).status, 202)
  t.equal((await alice('POST', `${path}/refresh`)).status, 200, 'to read it again opens nothing')
  const bot = await gateway.enroll('bot', [])
  const grant = { capabilities: ['files.use'] }
  t.equal(
    (await alice('PATCH', `/v1/admin/agents/${bot.id}/capabilities`, grant)).status,
    200,
    'not a server',
  )
})
