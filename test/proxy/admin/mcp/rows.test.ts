import t from 'tap'
import { type Json, testGateway } from '../../../support/gateway.ts'
import { changingServer, tool } from '../../../support/mcp/admin-server.ts'

const PATH = '/v1/admin/mcp-resources'
const PRIVATE = { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } }
/** Registered and never reachable: nobody listens on this port of the machine. */
const NOWHERE = 'http://127.0.0.1:1/mcp'

/** The rows of resources as they were written, each with what it says. */
async function rowsOf(gateway: Awaited<ReturnType<typeof testGateway>>) {
  const rows = (await gateway.rows()).filter(({ action }) => action.startsWith('mcp_resource.'))
  // Not by their time, which is when each request came.
  rows.sort((one, other) => one.seq - other.seq)
  return rows.map(({ action, detail }) => ({ action, detail: detail as Json }))
}

await t.test(
  'docs/ledger.md#replay: each row of a resource raises its revision by 1 and says all that it demands from then on',
  async (t) => {
    const upstream = await changingServer(t, tool('write'), tool('read'))
    const gateway = await testGateway(t, PRIVATE)
    const { json } = await gateway.admin('POST', PATH, {
      name: 'files',
      endpoint_url: upstream.url,
      tool_capabilities: { write: 'files.write' },
    })
    const path = `${PATH}/${json.resource_id}`
    const digests = new Map(json.tools.map((one: Json) => [one.name, one.digest]))
    await gateway.admin('PATCH', path, { required_capability: 'files.use', name: 'disk' })
    await gateway.admin('PATCH', path, { tool_capabilities: { odd: 'files.odd' }, enabled: false })
    upstream.list([tool('read', 'Other.')])
    const [read] = (await gateway.admin('POST', `${path}/refresh`)).json.tools
    await gateway.admin('POST', `${path}/tools/read/approve`, { digest: read.pending_digest })
    const quiet = await gateway.admin('POST', `${path}/refresh`)
    t.equal(quiet.headers.etag, '"7"', 'a read that finds nothing new leaves it as it is')
    await gateway.admin('DELETE', path)

    const rows = await rowsOf(gateway)
    t.strictSame(
      rows.map(({ detail }) => detail.revision),
      [1, 2, 3, 4, 5, 6, 7, 8],
    )
    for (const { detail } of rows) t.equal(detail.resource_id, json.resource_id)
    const demands = rows.map(({ detail }) => [
      ...[detail.name, detail.required_capability, detail.tool_capabilities, detail.enabled],
    ])
    const own = { write: 'files.write' }
    const odd = { odd: 'files.odd' }
    t.strictSame(demands, [
      ['files', null, own, true],
      ['files', null, own, true],
      ['disk', 'files.use', own, true],
      ['disk', 'files.use', odd, false],
      ['disk', 'files.use', odd, false],
      ['disk', 'files.use', odd, false],
      ['disk', 'files.use', odd, false],
      ['disk', 'files.use', odd, false],
    ])
    const tools = rows.map(({ action, detail: { pinned, quarantined, gone } }) => [
      action.slice('mcp_resource.'.length),
      ...[pinned, quarantined, gone?.length === 0 ? undefined : gone],
    ])
    t.strictSame(tools, [
      ['created', undefined, undefined, undefined],
      [
        'updated',
        ['read', 'write'].map((name) => [name, digests.get(name)]).reverse(),
        ...[undefined, undefined],
      ],
      ['updated', undefined, undefined, undefined],
      ['updated', undefined, undefined, undefined],
      ['updated', undefined, undefined, ['write']],
      ['tool_quarantined', undefined, [['read', read.pending_digest]], undefined],
      ['tool_approved', [['read', read.pending_digest]], undefined, undefined],
      ['deleted', undefined, undefined, undefined],
    ])
  },
)

await t.test(
  'docs/protocol.md#if-match: of fifty changes without If-Match at once each succeeds with a row of its own, and the last one stands',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const { json } = await gateway.admin('POST', PATH, { name: 'files', endpoint_url: NOWHERE })
    const path = `${PATH}/${json.resource_id}`
    const capabilities = Array.from({ length: 50 }, (_, index) => `files.use_${index}`)
    const answers = await Promise.all(
      capabilities.map((capability) => gateway.admin('PATCH', path, { required_capability: capability })),
    )
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200])
    const [, ...rows] = await rowsOf(gateway)
    t.strictSame(
      rows.map(({ detail }) => detail.revision),
      capabilities.map((_, index) => index + 2),
    )
    const demanded = rows.map(({ detail }) => detail.required_capability)
    t.strictSame(new Set(demanded), new Set(capabilities), 'each of them once')
    t.equal((await gateway.admin('GET', path)).json.required_capability, demanded.at(-1))
    const stale = { 'if-match': '"1"' }
    t.equal((await gateway.admin('PATCH', path, { enabled: false }, stale)).status, 412)
    t.equal((await gateway.admin('DELETE', path, undefined, stale)).status, 412)
  },
)

await t.test(
  'docs/protocol.md#if-match: approvals, readings and changes of one resource at once do not undo one another',
  async (t) => {
    const names = Array.from({ length: 12 }, (_, index) => `t${index}`)
    const upstream = await changingServer(t, ...names.map((name) => tool(name)))
    const gateway = await testGateway(t, PRIVATE)
    const { json } = await gateway.admin('POST', PATH, { name: 'files', endpoint_url: upstream.url })
    const path = `${PATH}/${json.resource_id}`
    upstream.list(names.map((name) => tool(name, 'Other.')))
    const waiting = (await gateway.admin('POST', `${path}/refresh`)).json.tools
    const answers = await Promise.all([
      ...waiting.map(({ name, pending_digest: digest }: Json) =>
        gateway.admin('POST', `${path}/tools/${name}/approve`, { digest }),
      ),
      ...names.map((description) => gateway.admin('PATCH', path, { description })),
      gateway.admin('POST', `${path}/refresh`),
    ])
    t.strictSame([...new Set(answers.map(({ status }) => status))], [200])
    const { tools } = (await gateway.admin('GET', path)).json
    t.ok(tools.every(({ state }: Json) => state === 'approved'))
    const revisions = (await rowsOf(gateway)).map(({ detail }) => detail.revision)
    t.strictSame(
      revisions,
      revisions.map((_, index) => index + 1),
    )
  },
)

await t.test(
  'docs/ledger.md#replay: the tools of a large server are pinned in portions: no row is larger than 60 KiB',
  async (t) => {
    const names = Array.from({ length: 200 }, (_, index) => `${index}${'n'.repeat(120)}`)
    const upstream = await changingServer(t, ...names.map((name) => tool(name)))
    const gateway = await testGateway(t, PRIVATE)
    const own = Object.fromEntries(names.slice(0, 80).map((name) => [name, 'c'.repeat(64)]))
    const { json } = await gateway.admin('POST', PATH, {
      name: 'files',
      endpoint_url: upstream.url,
      tool_capabilities: own,
    })
    upstream.list(names.map((name) => tool(name, 'Other.')))
    await gateway.admin('POST', `${PATH}/${json.resource_id}/refresh`)
    const rows = await rowsOf(gateway)
    t.equal(rows.length, 1 + 4 + 64 + 3, 'beyond 64 quarantined tools a row names many')
    for (const { detail } of rows) t.ok(JSON.stringify(detail).length < 60 * 1024)
    const named = (member: string) =>
      rows
        .flatMap(({ detail }) => detail[member] ?? [])
        .map(([name]) => String(name))
        .toSorted()
    t.strictSame(named('pinned'), names.toSorted())
    t.strictSame(named('quarantined'), names.toSorted())
  },
)

await t.test(
  'docs/ledger.md#replay: a row of a binding names the binding, its resource, and its principal as the ledger knows it',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const { json } = await gateway.admin('POST', PATH, { name: 'files', endpoint_url: NOWHERE })
    const bot = await gateway.enroll('bot', [])
    const user = await gateway.admin('POST', '/v1/admin/users', { user_name: 'zoe' })
    const ids = [bot.id, user.json.principal_id]
    const bindings: string[] = []
    for (const agent_id of ids) {
      const made = await gateway.admin('POST', `${PATH}/bindings`, {
        agent_id,
        resource_id: json.resource_id,
      })
      t.equal(made.status, 201)
      bindings.push(made.json.binding_id)
      await gateway.admin('DELETE', `${PATH}/bindings/${made.json.binding_id}`)
    }
    const rows = (await gateway.rows()).filter(({ action }) => action.startsWith('mcp_binding.'))
    const created = (await gateway.rows({ action: 'user.created' }))[0]
    const refs = [bot.id, created?.detail.subject]
    t.match(refs[1], /^usr_[a-z2-7]{26}$/)
    t.match(
      rows.map(({ action, detail }) => ({ action, detail: { ...detail } })),
      refs.flatMap((subject, index) =>
        ['created', 'revoked'].map((what) => ({
          action: `mcp_binding.${what}`,
          detail: { subject, binding: bindings[index], resource_id: json.resource_id, resource: 'files' },
        })),
      ),
    )
    t.notMatch(JSON.stringify(rows.map(({ detail }) => detail)), 'zoe')
    t.equal((await gateway.admin('GET', `${PATH}/${json.resource_id}`)).headers.etag, '"1"', 'nor a revision')
  },
)
