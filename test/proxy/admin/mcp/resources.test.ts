import t from 'tap'
import { type TestGateway, testGateway } from '../../../support/gateway.ts'
import { changingServer, tool } from '../../../support/mcp/admin-server.ts'

const PATH = '/v1/admin/mcp-resources'
const PRIVATE = { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } }
/** Registered and never reachable: nobody listens on this port of the machine. */
const NOWHERE = 'http://127.0.0.1:1/mcp'

const fieldsOf = ({ json }: Awaited<ReturnType<TestGateway['admin']>>): readonly string[] =>
  json.detail.errors.map(({ field }: { field: string }) => field)

await t.test(
  'docs/protocol.md#mcp-resources a registration answers the object, with the tools that it pinned',
  async (t) => {
    const upstream = await changingServer(t, tool('write'), tool('read'))
    const gateway = await testGateway(t, PRIVATE)
    const { status, headers, json } = await gateway.admin('POST', PATH, {
      name: 'files',
      endpoint_url: upstream.url,
      tool_capabilities: { write: 'files.write' },
    })
    t.equal(status, 201)
    t.equal(headers.etag, '"2"', 'the read that pinned them is a change too')
    t.match(json.resource_id, /^mcpr_[0-9a-f]{24}$/)
    const { resource_id, last_read_at, created_at, updated_at, tools, server, server_digest, ...rest } = json
    t.match(server_digest, /^[0-9a-f]{64}$/)
    t.strictSame(rest, {
      name: 'files',
      description: null,
      endpoint_url: upstream.url,
      auth_type: 'none',
      auth_secret_ref: null,
      required_capability: null,
      allowed_domains: [],
      enabled: true,
      tool_capabilities: { write: 'files.write' },
      ...{ approval: null, tool_approvals: {}, approval_ttl_s: 600, approval_wait_s: 0 },
      ...{ min_proof: 'certificate', tool_min_proof: {}, oauth: null },
      era: 'modern',
      protocol_version: '2026-07-28',
      last_error: null,
      skipped_count: 0,
      skipped_tools: [],
      created_by: 'admin',
      changed_by: 'admin',
      unknown_tools: [],
      pending_server_digest: null,
      server_flags: [],
    })
    t.match(server, { capabilities: { tools: {} }, serverInfo: { name: 'changing', version: '1.0.0' } })
    t.strictSame(Object.keys(server), ['capabilities', 'serverInfo'], 'and no instructions')
    t.ok([last_read_at, created_at, updated_at].every((at) => /^\d{4}-.*Z$/.test(at)))
    t.match(tools, [
      { name: 'read', exposed_as: 'files.read', required_capability: null, state: 'approved' },
      { name: 'write', exposed_as: 'files.write', required_capability: 'files.write', state: 'approved' },
    ])
    t.match(tools[0], { digest: /^[0-9a-f]{64}$/, pending_digest: null, flags: [], changed_at: null })
    t.notOk('changes' in tools[0])
    t.strictSame((await gateway.admin('GET', `${PATH}/${resource_id}`)).json, json)
    const { server: _, unknown_tools: __, server_digest: ___, server_flags: ____, ...listed } = json
    const short = tools.map(({ definition: _____, ...one }: Record<string, unknown>) => one)
    t.strictSame((await gateway.admin('GET', PATH)).json, [{ ...listed, tools: short }])
    const rows = await gateway.rows()
    t.match(
      rows.filter(({ action }) => action.startsWith('mcp_')),
      [
        {
          action: 'mcp_resource.created',
          principal_id: 'admin',
          detail: { subject: resource_id, name: 'files' },
        },
        { action: 'mcp_resource.updated', detail: { subject: resource_id, approved: ['read', 'write'] } },
      ],
    )
  },
)

await t.test(
  'docs/protocol.md#mcp-resources a server that cannot be read is registered all the same, and a refresh makes up for it',
  async (t) => {
    const upstream = await changingServer(t, tool('read'))
    upstream.list(null)
    const gateway = await testGateway(t, PRIVATE)
    const { status, json } = await gateway.admin('POST', PATH, { name: 'files', endpoint_url: upstream.url })
    t.equal(status, 201)
    t.match(json, { tools: [], era: null, server: null, last_read_at: null, last_error: /^.+$/ })
    const refresh = () => gateway.admin('POST', `${PATH}/${json.resource_id}/refresh`)
    t.match(await refresh(), { status: 200, json: { tools: [], last_error: json.last_error } })
    upstream.list([tool('read')])
    t.match(await refresh(), { status: 200, json: { tools: [{ state: 'approved' }], last_error: null } })
    upstream.list(null)
    const down = await refresh()
    t.match(down, { status: 200, json: { tools: [{ state: 'approved' }], era: 'modern' } })
    t.type(down.json.last_error, 'string')
    t.equal((await gateway.admin('POST', `${PATH}/mcpr_0/refresh`)).status, 404)
  },
)

await t.test(
  'a capability that was given to a tool the server does not have is told, once it was read',
  async (t) => {
    const upstream = await changingServer(t, tool('write_file'), tool('read'))
    upstream.list(null)
    const gateway = await testGateway(t, PRIVATE)
    const created = await gateway.admin('POST', PATH, {
      name: 'files',
      endpoint_url: upstream.url,
      tool_capabilities: { write_fil: 'files.write', read: 'files.read', constructor: 'files.odd' },
    })
    t.strictSame(created.json.unknown_tools, [], 'nobody knows yet what it has')
    const path = `${PATH}/${created.json.resource_id}`
    upstream.list([tool('write_file'), tool('read')])
    const read = (await gateway.admin('POST', `${path}/refresh`)).json
    t.strictSame(read.unknown_tools.toSorted(), ['constructor', 'write_fil'])
    upstream.list([tool('write_file')])
    const without = (await gateway.admin('POST', `${path}/refresh`)).json
    t.strictSame(
      without.unknown_tools.toSorted(),
      ['constructor', 'write_fil'],
      'read is gone, and was there',
    )
    const mended = await gateway.admin('PATCH', path, { tool_capabilities: { write_file: 'files.write' } })
    t.strictSame(mended.json.unknown_tools, [])
  },
)

await t.test(
  '§2.4 required_capability is optional, null where it is not given, and else a token',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const register = (name: string, required_capability: unknown) =>
      gateway.admin('POST', PATH, { name, endpoint_url: NOWHERE, required_capability })
    t.equal((await register('a', 'files.use')).json.required_capability, 'files.use')
    const { json } = await register('b', null)
    t.equal(json.required_capability, null)
    const absent = await gateway.admin('POST', PATH, { name: 'absent', endpoint_url: NOWHERE })
    t.equal(absent.json.required_capability, null)
    for (const bad of ['', 'A', 'a b', 7, 'x'.repeat(65), ['llm.chat']]) {
      const refused = await register('c', bad)
      t.strictSame([refused.status, fieldsOf(refused)], [422, ['required_capability']], JSON.stringify(bad))
    }
    const patch = (capability: unknown) =>
      gateway.admin('PATCH', `${PATH}/${json.resource_id}`, { required_capability: capability })
    t.equal((await patch('b.use')).json.required_capability, 'b.use')
    t.equal((await patch(null)).json.required_capability, null)
    t.equal((await patch('B')).status, 422)
  },
)

await t.test(
  'docs/protocol.md#mcp-resources every field that breaks a rule is named, and nothing is registered',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const good = { name: 'files', endpoint_url: 'http://127.0.0.1:1/mcp' }
    const many = Object.fromEntries(Array.from({ length: 257 }, (_, index) => [`t${index}`, 'a']))
    const long = Object.fromEntries(
      Array.from({ length: 200 }, (_, index) => [`${'t'.repeat(100)}${index}`, 'a']),
    )
    const bad: readonly (readonly [string, object])[] = [
      ...['', 'a b', 'a/b', 'x'.repeat(65), 'http', 'http.get', 7].map((name) => ['name', { name }] as const),
      ...[
        'ftp://x.example/',
        'x.example',
        'https://',
        'https://u:p@x.example/',
        'https://@x.example/',
        'https://x.example/#f',
        'https://x.example/#',
        ' https://x.example/',
        'https://x.exa\tmple/',
        'https:\\\\x.example/',
        `https://x.example/${'a'.repeat(2048)}`,
        `https://x.example/${'é'.repeat(1000)}`,
        7,
      ].map((endpoint_url) => ['endpoint_url', { endpoint_url }] as const),
      ['description', { description: 'x'.repeat(1025) }],
      ['description', { description: 'a\u202eb' }],
      ['auth_type', { auth_type: 'basic' }],
      ['auth_secret_ref', { auth_type: 'bearer' }],
      ['auth_secret_ref', { auth_secret_ref: 'env:MCP_SECRET_TOKEN' }],
      ['allowed_domains', { allowed_domains: ['other.example'] }],
      ...['a.example:1', 'https://a.example', '*.example', 'a b', 'u@a.example', 'a/b', ''].map(
        (domain) => ['allowed_domains[1]', { allowed_domains: ['127.0.0.1', domain] }] as const,
      ),
      ['enabled', { enabled: 'yes' }],
      ['tool_capabilities', { tool_capabilities: many }],
      ['tool_capabilities', { tool_capabilities: long }],
      ['tool_capabilities', { tool_capabilities: [] }],
      ['tool_capabilities', { tool_capabilities: { '': 'a' } }],
      ['tool_capabilities', { tool_capabilities: { 'a b': 'a' } }],
      ['tool_capabilities', { tool_capabilities: { ['x'.repeat(129)]: 'a' } }],
      ['tool_capabilities.read', { tool_capabilities: { read: 'A' } }],
      ['required_capabilty', { required_capabilty: 'a' }],
    ]
    for (const [field, broken] of bad) {
      const refused = await gateway.admin('POST', PATH, { ...good, ...broken })
      t.strictSame(
        [refused.status, refused.json.detail.errors && fieldsOf(refused)],
        [422, [field]],
        JSON.stringify(broken).slice(0, 60),
      )
    }
    t.strictSame(fieldsOf(await gateway.admin('POST', PATH, {})), ['name', 'endpoint_url'])
    t.strictSame((await gateway.admin('GET', PATH)).json, [])
  },
)

await t.test(
  'a secret that was pasted where its reference belongs is refused, and repeated nowhere',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const refs = [
      'sk-live-0451',
      'Bearer sk-live-0451',
      'env:sk-live-0451',
      'file:sk-live-0451',
      'env:',
      'file:/',
    ]
    const files = [
      'file:/proc/self/environ',
      'file:/run/../proc/self/environ',
      'file:/a\u0000b',
      'file://etc/x',
    ]
    for (const auth_secret_ref of [...refs, ...files, 'env:MCP_PROXY_ADMIN_SECRET', 'ENV:TOKEN']) {
      const body = { name: 'files', endpoint_url: NOWHERE, auth_type: 'bearer', auth_secret_ref }
      const refused = await gateway.admin('POST', PATH, body)
      t.strictSame([refused.status, fieldsOf(refused)], [422, ['auth_secret_ref']], auth_secret_ref)
      t.notMatch(refused.text, 'sk-live')
    }
    const inUrl = await gateway.admin('POST', PATH, {
      name: 'a',
      endpoint_url: 'https://u:sk-live-0451@x.example/',
    })
    t.equal(inUrl.status, 422)
    t.notMatch(inUrl.text, 'sk-live')
    t.notMatch(JSON.stringify(gateway.log), 'sk-live')
    t.notMatch(JSON.stringify(await gateway.rows()), 'sk-live')
  },
)

await t.test('a reference is shown, its secret never: not in an answer, a row or the log', async (t) => {
  const upstream = await changingServer(t, tool('read'))
  const gateway = await testGateway(t, { ...PRIVATE, env: { MCP_SECRET_FILES: 'sk-live-0451' } })
  const { status, json, text } = await gateway.admin('POST', PATH, {
    name: 'files',
    endpoint_url: `${upstream.url}?key=in-the-query`,
    auth_type: 'bearer',
    auth_secret_ref: 'env:MCP_SECRET_FILES',
  })
  t.strictSame([status, json.auth_secret_ref, json.tools.length], [201, 'env:MCP_SECRET_FILES', 1])
  t.equal(upstream.requests[0]?.headers.authorization, 'Bearer sk-live-0451')
  t.notMatch(text, 'sk-live')
  t.notMatch(JSON.stringify(gateway.log), 'sk-live')
  const rows = JSON.stringify(await gateway.rows())
  t.match(rows, 'env:MCP_SECRET_FILES')
  t.notMatch(rows, 'sk-live')
  t.notMatch(rows, 'in-the-query', 'a query may be a key')
})

await t.test(
  'threat 19 a private, loopback or special host is refused, unless the operator says so',
  async (t) => {
    const gateway = await testGateway(t)
    const register = (endpoint_url: string) => gateway.admin('POST', PATH, { name: 'files', endpoint_url })
    const hosts = [
      '127.0.0.1',
      '10.0.0.1',
      '169.254.169.254',
      '[::1]',
      '[::ffff:127.0.0.1]',
      'localhost',
      '0x7f.1',
    ]
    for (const host of [...hosts, 'metadata.google.internal', '2130706433', 'a.localhost', 'LOCALHOST']) {
      const refused = await register(`https://${host}/mcp`)
      t.strictSame([refused.status, fieldsOf(refused)], [422, ['endpoint_url']], host)
    }
    const open = await testGateway(t, PRIVATE)
    const metadata = await open.admin('POST', PATH, { name: 'm', endpoint_url: 'http://169.254.169.254/' })
    t.equal(metadata.status, 422, 'a metadata service is never one')
    t.equal((await open.admin('POST', PATH, { name: 'l', endpoint_url: NOWHERE })).status, 201)
  },
)

await t.test(
  'docs/protocol.md#mcp-resources a name is taken once, and <resource>.<tool> never means two things',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const register = (name: string) => gateway.admin('POST', PATH, { name, endpoint_url: NOWHERE })
    const { json } = await register('git.hub')
    t.equal((await register('git.hub')).status, 409)
    for (const name of ['git', 'git.hub.issues', 'git.hub.']) {
      const refused = await register(name)
      t.strictSame([refused.status, fieldsOf(refused)], [422, ['name']], name)
    }
    for (const name of ['git_hub.x', 'git.hub2', 'github']) t.equal((await register(name)).status, 201, name)
    const rename = (name: string) => gateway.admin('PATCH', `${PATH}/${json.resource_id}`, { name })
    t.equal((await rename('github')).status, 409)
    t.strictSame(fieldsOf(await rename('github.x')), ['name'])
    t.strictSame(fieldsOf(await rename('git')), ['name'], 'git.hub2 stands in the way')
    t.equal((await rename('git.hub.x')).json.name, 'git.hub.x', 'its own old name does not')
    t.equal((await register('git.hub')).status, 422)
  },
)

await t.test(
  'docs/protocol.md#mcp-resources a change replaces what it names, counts the revision and writes one row',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const reference = `file:${gateway.settings.secretsDir}/files`
    const created = await gateway.admin('POST', PATH, {
      name: 'files',
      endpoint_url: NOWHERE,
      description: 'Files',
      auth_type: 'api_key',
      auth_secret_ref: reference,
      allowed_domains: ['127.0.0.1', 'FILES.example', 'files.example'],
      tool_capabilities: { read: 'files.read' },
    })
    t.equal(created.status, 201, created.text)
    t.strictSame(created.json.allowed_domains, ['127.0.0.1', 'files.example'])
    const path = `${PATH}/${created.json.resource_id}`
    const patched = await gateway.admin('PATCH', path, {
      enabled: false,
      tool_capabilities: { __proto: 'x' },
    })
    t.strictSame([patched.status, patched.headers.etag], [200, '"2"'])
    t.match(patched.json, {
      enabled: false,
      description: 'Files',
      auth_secret_ref: reference,
    })
    t.strictSame(patched.json.tool_capabilities, { __proto: 'x' })
    const [row] = await gateway.rows({ action: 'mcp_resource.updated' })
    t.match(row?.detail, {
      subject: created.json.resource_id,
      fields: { enabled: false },
      enabled: false,
      tool_capabilities: { __proto: 'x' },
      previous: { enabled: true, tool_capabilities: [['read', 'files.read']] },
      via: 'secret',
    })
    const emptied = await gateway.admin('PATCH', path, {
      description: null,
      allowed_domains: null,
      tool_capabilities: null,
      auth_type: 'none',
    })
    t.match(emptied.json, {
      description: null,
      allowed_domains: [],
      auth_type: 'none',
      auth_secret_ref: null,
    })
    t.strictSame(emptied.json.tool_capabilities, {})
    const rows = (await gateway.rows()).length
    t.equal(
      (await gateway.admin('PATCH', path, { enabled: false })).headers.etag,
      '"3"',
      'nothing has changed',
    )
    t.equal((await gateway.admin('PATCH', path, {})).status, 200)
    t.equal((await gateway.rows()).length, rows)
    t.equal((await gateway.admin('PATCH', path, { resource_id: 'x' })).status, 422)
    t.equal((await gateway.admin('PATCH', path, { auth_type: 'mtls' })).status, 422)
    t.equal((await gateway.admin('PATCH', path, { enabled: null })).status, 422)
    t.equal((await gateway.admin('PATCH', `${PATH}/mcpr_0`, { enabled: true })).status, 404)
  },
)

await t.test('the largest change that is accepted has room in its audit row', async (t) => {
  const gateway = await testGateway(t, PRIVATE)
  const domains = (digit: string) =>
    Array.from({ length: 31 }, (_, i) => `${i}.${`${digit}${'a'.repeat(60)}.`.repeat(4)}x`)
  const largest = (digit: string) => ({
    description: '"'.repeat(1023) + digit,
    endpoint_url: `http://127.0.0.1:1/${digit}${'a'.repeat(2000)}`,
    allowed_domains: ['127.0.0.1', ...domains(digit)],
    tool_capabilities: Object.fromEntries(
      Array.from({ length: 86 }, (_, i) => [`${digit}${i}${'t'.repeat(112)}`, 'c'.repeat(64)]),
    ),
    auth_type: 'bearer',
    auth_secret_ref: `file:${gateway.settings.secretsDir}/${digit}`.padEnd(1028, 'b'),
  })
  const created = await gateway.admin('POST', PATH, { name: 'x'.repeat(64), ...largest('1') })
  t.equal(created.status, 201, created.text.slice(0, 300))
  const patched = await gateway.admin('PATCH', `${PATH}/${created.json.resource_id}`, largest('2'))
  t.equal(patched.status, 200, patched.text.slice(0, 300))
})

await t.test(
  'docs/protocol.md#if-match a change made on a stale read is refused 412, and nothing of it happens',
  async (t) => {
    const gateway = await testGateway(t, PRIVATE)
    const { json } = await gateway.admin('POST', PATH, { name: 'files', endpoint_url: NOWHERE })
    const path = `${PATH}/${json.resource_id}`
    const stale = { 'if-match': '"1"' }
    t.equal((await gateway.admin('PATCH', path, { description: 'a' }, stale)).status, 200)
    t.equal((await gateway.admin('PATCH', path, { description: 'b' }, stale)).status, 412)
    t.equal((await gateway.admin('DELETE', path, undefined, stale)).status, 412)
    t.equal((await gateway.admin('GET', path)).json.description, 'a')
    t.equal((await gateway.admin('DELETE', path, undefined, { 'if-match': '"2"' })).status, 204)
    t.equal((await gateway.admin('GET', path)).status, 404)
    t.equal((await gateway.admin('DELETE', path)).status, 404)
    t.match(await gateway.rows({ action: 'mcp_resource.deleted' }), [
      { detail: { subject: json.resource_id, name: 'files' } },
    ])
  },
)

await t.test('a new endpoint is read at once, and judged by what was approved at the old one', async (t) => {
  const first = await changingServer(t, tool('read'))
  const second = await changingServer(t, tool('read', 'Sends it elsewhere.'))
  const gateway = await testGateway(t, PRIVATE)
  const { json } = await gateway.admin('POST', PATH, { name: 'files', endpoint_url: first.url })
  const path = `${PATH}/${json.resource_id}`
  const reads = first.requests.length
  await gateway.admin('PATCH', path, { description: 'no reason to read' })
  t.equal(first.requests.length, reads)
  const moved = await gateway.admin('PATCH', path, { endpoint_url: second.url })
  t.ok(second.requests.length > 0)
  t.match(moved.json.tools, [{ state: 'quarantined', digest: json.tools[0].digest }])
})

await t.test('§5.1 without the operator secret nothing of this is answered', async (t) => {
  const gateway = await testGateway(t, PRIVATE)
  const agent = await gateway.enroll('bot', ['mcp.tools.call'])
  const calls = [
    ['POST', PATH],
    ['GET', PATH],
    ['GET', `${PATH}/mcpr_0`],
    ['PATCH', `${PATH}/mcpr_0`],
    ['DELETE', `${PATH}/mcpr_0`],
    ['POST', `${PATH}/mcpr_0/refresh`],
    ['POST', `${PATH}/mcpr_0/tools/x/approve`],
    ['POST', `${PATH}/mcpr_0/server/approve`],
  ] as const
  for (const [method, path] of calls) {
    t.equal((await gateway.call(agent, method, path)).status, 403, `${method} ${path}`)
  }
})

await t.test('a server on a private host is refused with the setting that allows it', async (t) => {
  const gateway = await testGateway(t)
  const register = (endpoint_url: string) => gateway.admin('POST', PATH, { name: 'files', endpoint_url })
  for (const host of ['127.0.0.1:9', 'localhost', '10.1.2.3', 'files.internal', 'files', '[::1]']) {
    const { status, text } = await register(`http://${host}/mcp`)
    t.equal(status, 422, host)
    t.match(text, /MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS=true/, host)
  }
  const metadata = await register('http://169.254.169.254/mcp')
  t.equal(metadata.status, 422)
  t.notMatch(metadata.text, /MCP_PROXY_/, 'which nothing allows')
})
