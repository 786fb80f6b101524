import t from 'tap'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { MODERN_VERSION } from '../../../proxy/mcp/protocol/versions.ts'
import { commitmentsIn } from '../../support/commitments.ts'
import type { Identity, Json } from '../../support/gateway.ts'
import { type Act, legacy, type RawMcp, rawMcp, result, sendJson } from '../../support/mcp/raw-upstream.ts'
import { called, echo, legacyWith, mcpStage, type Stage, tool } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const TOOLS = ['read', 'write'].map((name) => tool(name))

const modernEcho: Act = (res, told) => {
  const capabilities = { tools: {} }
  if (told.rpc === 'server/discover')
    sendJson(res, result(told, { resultType: 'complete', supportedVersions: [MODERN_VERSION], capabilities }))
  else if (told.rpc === 'tools/list')
    sendJson(res, result(told, { resultType: 'complete', tools: TOOLS, ttlMs: 0, cacheScope: 'private' }))
  else return echo(res, told)
}

/** Numbers below `limit`, the same in each run. */
function dice(seed: number): (limit: number) => number {
  let state = seed
  return (limit) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648
    return Math.floor((state / 2_147_483_648) * limit)
  }
}

/**
 * The decisions of authority that name a revision of their resource, or a binding to it, that is not the one of the
 * rows before them.
 */
function misplaced(rows: readonly AuditRow[]): readonly string[] {
  const revisions = new Map<string, number>()
  const bindings = new Map<string, string>()
  return rows.flatMap(({ seq, action, status, principal_id: principal, detail: said }) => {
    const detail = said as Json
    if (action.startsWith('mcp_resource.')) revisions.set(detail.resource_id, detail.revision)
    const bound = `${detail.subject} ${detail.resource_id}`
    if (action === 'mcp_binding.created') bindings.set(bound, detail.binding)
    if (action === 'mcp_binding.revoked') bindings.delete(bound)
    const { resource, binding = null } = detail.authority ?? {}
    if (!resource || !['allowed', 'denied'].includes(status)) return []
    const known = [revisions.get(resource.id), bindings.get(`${principal} ${resource.id}`) ?? null]
    const named = [resource.revision, binding]
    const texts = [named, known].map((pair) => JSON.stringify(pair))
    return texts[0] === texts[1] ? [] : [`${seq}: ${texts.join(', not ')}`]
  })
}

interface Ground {
  readonly stage: Stage
  readonly resources: readonly Json[]
  readonly principals: readonly Identity[]
  readonly bindings: Map<string, string>
}

/** One change of an operator, at random. Whether it is taken does not matter. */
async function change(
  { stage, resources, principals, bindings }: Ground,
  roll: (n: number) => number,
): Promise<void> {
  const at = '/v1/admin/mcp-resources'
  const [which, who] = [roll(resources.length), roll(principals.length)]
  const { resource_id: id, name } = resources[which]
  const principal = principals[who]
  if (!principal) return
  const key = `${which} ${who}`
  const patch = (fields: Json) => stage.admin('PATCH', `${at}/${id}`, fields)
  const changes: readonly (() => Promise<unknown>)[] = [
    () => stage.grant(principal, ['a.use', 'b.use', 'a.write'].slice(roll(5) === 0 ? 1 : 0)),
    () => patch({ enabled: roll(5) > 0 }),
    () => patch({ required_capability: roll(3) ? 'a.use' : 'b.use' }),
    () => patch({ tool_capabilities: roll(2) ? { write: 'a.write' } : {} }),
    () => patch({ name: roll(4) ? name : `${name}2` }),
    () => stage.admin('POST', `${at}/${id}/refresh`),
    async () => {
      const bound = bindings.get(key)
      bindings.delete(key)
      if (bound) await stage.admin('DELETE', `${at}/bindings/${bound}`)
      else bindings.set(key, (await stage.bind(principal, resources[which])).binding_id)
    },
  ]
  await changes[roll(changes.length)]?.()
}

async function caller({ stage, principals }: Ground, n: number, roll: (n: number) => number): Promise<void> {
  const who = principals[roll(principals.length)]
  if (!who) return
  const name = `${['one', 'two', 'one', 'two', 'one2', 'two2'][roll(6)]}.${['read', 'write'][roll(2)]}`
  const modern = roll(2) === 0
  await stage.callTool(who, name, { n }, { modern, id: roll(3) })
}

const ENDED = ['success', 'error', 'truncated']
const count = (rows: readonly AuditRow[], wanted: readonly string[]): number =>
  rows.filter(({ status }) => wanted.includes(status)).length

/** The arguments of the calls that reached a server, each with the tool. */
const reached = (server: RawMcp): readonly string[] =>
  called(server).map((params) => `${params.name} ${JSON.stringify(params.arguments)}`)

await t.test(
  'rows 9 and 12: under any changes, what reaches a server is what one row allowed, once, and each has an outcome',
  async (t) => {
    const stage = await mcpStage(t)
    const servers = [await rawMcp(t, legacyWith(TOOLS)), await rawMcp(t, modernEcho)]
    const resources = await Promise.all(
      ['one', 'two'].map((name, index) =>
        stage.register(name, servers[index] ?? { url: '' }, { required_capability: 'a.use' }),
      ),
    )
    const principals = await Promise.all(['bot', 'eve'].map((name) => stage.enroll(name, ['a.use'])))
    const ground: Ground = { stage, resources, principals, bindings: new Map() }
    for (const [which, resource] of resources.entries())
      for (const [who, principal] of principals.entries())
        ground.bindings.set(`${which} ${who}`, (await stage.bind(principal, resource)).binding_id)
    const roll = dice(5)
    for (let round = 0; round < 24; round += 1) {
      const calls = Array.from({ length: 8 }, (_, index) => caller(ground, round * 8 + index, roll))
      await Promise.allSettled([...calls, change(ground, roll), change(ground, roll)])
    }
    const rows = await eventually(
      () => stage.rows({ action: 'mcp_tools_call', limit: 1000 }),
      (all) => count(all, ENDED) >= count(all, ['allowed']),
    )
    const having = (...wanted: string[]) => rows.filter(({ status }) => wanted.includes(status))
    const sent = servers.flatMap(reached)
    const committed = await commitmentsIn(stage)
    const allowed = having('allowed').map((row) => {
      const texts = Array.from({ length: 24 * 8 }, (_, n) => JSON.stringify({ n }))
      const commitment = (row.detail as Json).arguments_sha256
      const found = texts.find((text) => committed(row, 'arguments_sha256', text) === commitment)
      return `${row.tool?.split('.')[1]} ${found}`
    })
    t.ok(sent.length > 9 && having('denied').length > 9, `${sent.length} of ${rows.length}`)
    t.equal(new Set(sent).size, sent.length, 'none twice')
    t.same(
      sent.filter((one) => !allowed.includes(one)),
      [],
      'none without its row',
    )
    t.equal(new Set(allowed).size, allowed.length)
    t.same(
      // By their places: the instants are those at which they were made.
      misplaced((await stage.rows({ limit: 1000 })).toSorted((one, other) => one.seq - other.seq)),
      [],
      'each stands where what it was judged by stood',
    )
    const idsOf = (some: readonly AuditRow[]) => new Set(some.map(({ request_id: id }) => id))
    t.equal(having(...ENDED).length, having('allowed').length)
    t.same(idsOf(having(...ENDED)), idsOf(having('allowed')))
  },
)

await t.test(
  'docs/architecture.md the organisation’s own check is asked about every gated method',
  async (t) => {
    const own =
      "export const plugin = (_, { Refusal }) => ({ name: 'nobody', needs: [], admit() { throw new Refusal('policy_denied') } })"
    const stage = await mcpStage(t, { files: { 'nobody.js': own, '35-own.yaml': 'plugin: ./nobody.js\n' } })
    const capabilities = { tools: {}, prompts: {}, resources: {}, completions: {}, logging: {} }
    const server = await rawMcp(t, legacy({ capabilities, tools: [tool('x')] }))
    const resource = await stage.register('s', server)
    const all = ['mcp.tools.call', 'mcp.tools.list', 'mcp.prompts.get', 'mcp.resources.read', 'http.get']
    const bot = await stage.enroll('bot', all)
    await stage.bind(bot, resource)
    const before = server.told.length
    const [uri, argument] = ['a://b', { name: 'a', value: '' }]
    for (const at of ['', '/s']) {
      const cases: readonly (readonly [string, Json])[] = [
        ['tools/call', { name: at === '' ? 's.x' : 'x' }],
        ['tools/list', {}],
        ['prompts/list', {}],
        ['prompts/get', { name: 's.p' }],
        ['resources/list', {}],
        ['resources/templates/list', {}],
        ['resources/read', { uri }],
        ['resources/subscribe', { uri }],
        ['resources/unsubscribe', { uri }],
        ['logging/setLevel', { level: 'info' }],
        ['completion/complete', { ref: { type: 'ref/prompt', name: 's.p' }, argument }],
        ['completion/complete', { ref: { type: 'ref/resource', uri }, argument }],
      ]
      for (const [method, params] of cases)
        t.equal((await stage.rpc(bot, method, { params, at })).json.error?.code, -31005, `${at} ${method}`)
    }
    const fetched = await stage.callTool(bot, 'http.get', { url: 'https://example.com/' })
    t.equal(fetched.json.error?.code, -31005)
    t.equal(server.told.length, before, 'and nobody was asked anything')
  },
)
