import t from 'tap'
import { changingServer, tool } from '../../support/mcp/admin-server.ts'
import { operator } from '../../support/scripts/operator.ts'

const byName = ([a]: [string, unknown], [b]: [string, unknown]): number => (a < b ? -1 : 1)

await t.test(
  '§2.4 mcp add registers a server with all that was said, and its tools are pinned',
  async (t) => {
    const { stage, mcp } = await operator(t)
    const bot = await stage.enroll('bot', ['mcp.tools.list', 'files.use'])
    const server = await changingServer(t, tool('read'), tool('a=b'), tool('__proto__'))
    const ran = await mcp(
      ...['add', 'files', server.url, '--capability', 'files.use', '--description', 'Our files'],
      ...['--tool-capability', 'a=b=files.odd', '--tool-capability', '__proto__=files.proto'],
      ...[
        '--auth',
        'bearer',
        '--secret',
        'env:MCP_SECRET_FILES',
        '--allowed-domain',
        '127.0.0.1',
        '--bind',
        bot.id,
      ],
    )
    t.equal(ran.code, 0, ran.err)
    const [resource] = (await stage.admin('GET', '/v1/admin/mcp-resources')).json
    t.match(resource, {
      name: 'files',
      endpoint_url: server.url,
      description: 'Our files',
      required_capability: 'files.use',
      auth_type: 'bearer',
      auth_secret_ref: 'env:MCP_SECRET_FILES',
      allowed_domains: ['127.0.0.1'],
    })
    t.same(Object.entries(resource.tool_capabilities).toSorted(byName), [
      ['__proto__', 'files.proto'],
      ['a=b', 'files.odd'],
    ])
    t.match(ran.out, /^registered files \(mcpr_[0-9a-f]+\); its tools require files\.use /)
    t.match(ran.out, /^it could not be read yet, so it has no tools: .*secret/m, 'none is set')
    t.match(ran.out, /^acme::bot is bound to files$/m)
    const [row] = await stage.rows({ action: 'mcp_resource.created' })
    t.equal(row?.detail.via, 'socket')
  },
)

await t.test('mcp add, list and show: what was read is said, and a bound agent may call it', async (t) => {
  const { stage, spawned: mcp } = await operator(t)
  const bot = await stage.enroll('bot', ['mcp.tools.list', 'files.use'])
  const server = await changingServer(t, tool('read'), tool('write'))
  t.match(await mcp('list'), { code: 0, out: 'no MCP server is registered: make mcp ARGS="add NAME URL"\n' })
  const added = await mcp(
    ...['add', 'files', `${server.url}?key=hidden`, '--capability', 'files.use'],
    ...['--tool-capability', 'write=files.write', '--bind', bot.id],
  )
  t.equal(added.code, 0, added.err)
  t.match(added.out, /^read files: 2 approved, pinned as they are now$/m)
  t.same(await stage.listed(bot), ['files.read', 'files.write'], 'what is bound')
  const listed = await mcp('list')
  t.match(listed.out, /^NAME +STATE +DEMANDS +BOUND +ENDPOINT +TOOLS\n/)
  t.match(listed.out, /^files +ok +files\.use +1 +http:\/\/127\.0\.0\.1:\d+\/mcp\?… +2 approved$/m)
  const shown = await mcp('show', 'files')
  t.match(shown.out, /^ {2}bound +acme::bot$/m)
  t.match(shown.out, /^ {2}credential +none$/m)
  t.match(shown.out, /^ {4}approved +read +files\.use$/m)
  t.match(shown.out, /^ {4}approved +write +files\.write$/m)
  t.notMatch(listed.out + shown.out, 'hidden', 'a query may be a key')
  t.match(JSON.parse((await mcp('list', '--json')).out), [{ name: 'files', tools: [{ name: 'read' }, {}] }])
})

await t.test('what the service refuses is said in its own sentence, and nothing is half-done', async (t) => {
  const { stage, mcp } = await operator(t)
  const server = await changingServer(t, tool('read'))
  const refused = async (said: RegExp, ...args: string[]) => {
    const { code, out, err } = await mcp(...args)
    t.same({ code, out }, { code: 1, out: '' }, args.join(' '))
    t.match(err, said)
    t.match(err, /^sallyport: [^\n]+\n$/, 'one sentence')
  }
  const add = ['add', 'files', server.url]
  await refused(/^sallyport: name: /, 'add', 'http.get', server.url)
  const metadata = 'http://169.254.169.254/mcp'
  await refused(/endpoint_url: .*does not connect to \(metadata\)$/m, 'add', 'files', metadata)
  await refused(/^sallyport: auth_secret_ref: is required/, ...add, '--auth', 'bearer')
  await refused(
    /^sallyport: auth_secret_ref: (?!.*hunter2)/,
    ...add,
    '--auth',
    'bearer',
    '--secret',
    'hunter2',
  )
  await refused(/^sallyport: required_capability: /, ...add, '--capability', 'NO')
  await refused(/there is no MCP server with the name "files": none is registered/, 'show', 'files')
  t.same((await stage.admin('GET', '/v1/admin/mcp-resources')).json, [])
  t.equal((await mcp(...add)).code, 0)
  await refused(/"fils\\u\{200b\}": did you mean files\?/, 'refresh', 'fils\u200b')
  await refused(/^sallyport: name: /, 'add', 'files.more', server.url)
})

await t.test('a tool that the server does not have is told by add, show and refresh', async (t) => {
  const { mcp } = await operator(t)
  const server = await changingServer(t, tool('write_file'))
  const told = /^tool_capabilities names write_fil, which the server does not have$/m
  const added = await mcp('add', 'files', server.url, '--tool-capability', 'write_fil=files.write')
  for (const ran of [added, await mcp('show', 'files'), await mcp('refresh', 'files')]) {
    t.match(ran, { code: 0, out: told })
  }
  const right = await mcp('add', 'others', server.url, '--tool-capability', 'write_file=files.write')
  for (const ran of [right, await mcp('show', 'others'), await mcp('refresh', 'others')]) {
    t.equal(ran.code, 0, ran.err)
    t.notMatch(ran.out, told)
  }
})

await t.test(
  'a server that cannot be read is registered and said to be so; refresh fails with why',
  async (t) => {
    const { mcp } = await operator(t)
    const server = await changingServer(t, tool('read'))
    server.list(null)
    const added = await mcp('add', 'files', server.url)
    t.match(added, { code: 0, out: /^it could not be read yet, so it has no tools: .*\ntry: /m })
    t.match((await mcp('list')).out, /^files +unreadable /m)
    t.match((await mcp('show', 'files')).out, /^ {2}error +\S/m)
    t.match(await mcp('refresh', 'files'), { code: 1, err: /^sallyport: files could not be read: [^\n]+\n$/ })
    server.list([tool('read')])
    t.match(await mcp('refresh', 'files'), { code: 0, out: 'files was read: 1 approved\n' })
  },
)

await t.test('mcp bind, unbind and remove hold on the next call', async (t) => {
  const { stage, mcp } = await operator(t)
  const server = await changingServer(t, tool('read'))
  const bot = await stage.enroll('bot', ['mcp.tools.list', 'files.use'])
  const other = await stage.enroll('other', ['mcp.tools.list', 'files.use'])
  await mcp('add', 'files', server.url, '--capability', 'files.use')
  t.same(await stage.listed(bot), [])
  t.match(await mcp('bind', 'files', bot.id, other.id), {
    code: 0,
    out: 'acme::bot is bound to files\nacme::other is bound to files\n',
  })
  t.same(await stage.listed(bot), ['files.read'])
  t.match(await mcp('bind', 'files', bot.id), { code: 1, err: /acme::bot is already bound to files/ })
  t.match(await mcp('bind', 'files', 'acme::nobody'), {
    code: 1,
    err: /^sallyport: acme::nobody: .*is not a principal of this service\n$/,
  })
  t.match(await mcp('unbind', 'files', bot.id), {
    code: 0,
    out: 'acme::bot is no longer bound to files\n',
  })
  t.same(await stage.listed(bot), [])
  t.same(await stage.listed(other), ['files.read'], 'another’s binding stays')
  t.match(await mcp('unbind', 'files', bot.id), { code: 1, err: /acme::bot is not bound to files/ })
  t.match(await mcp('remove', 'files'), { code: 0, out: 'files is removed, with its tools and bindings\n' })
  t.same(await stage.listed(other), [])
  t.match(await mcp('remove', 'files'), { code: 1, err: /there is no MCP server/ })
})

await t.test(
  'a server that misbehaves is disabled on the next call, and enabled with what was approved and no more',
  async (t) => {
    const { stage, mcp } = await operator(t)
    const server = await changingServer(t, tool('read'))
    const bot = await stage.enroll('bot', ['mcp.tools.list', 'files.use'])
    await mcp('add', 'files', server.url, '--capability', 'files.use', '--bind', bot.id)
    const code = async () => (await stage.callTool(bot, 'files.read')).json.error?.code
    t.same(await stage.listed(bot), ['files.read'])
    t.match(await mcp('disable', 'files'), { code: 0, out: /^files is disabled: / })
    t.same(await stage.listed(bot), [])
    t.equal(await code(), -32004)
    t.match((await mcp('list')).out, /^files +disabled /m)
    t.match(await mcp('disable', 'files'), { code: 0 }, 'it stays so')
    server.list([tool('read', 'Reads, and mails it away.')])
    t.match(await mcp('refresh', 'files'), { code: 0, out: /1 quarantined/ }, 'it can be looked at meanwhile')
    t.match(await mcp('enable', 'files'), { code: 0, out: /^files is enabled/ })
    t.same(await stage.listed(bot), [])
    t.equal(await code(), -32006, 'what it lists now waits, as it would have')
    server.list([tool('read')])
    await mcp('refresh', 'files')
    t.same(await stage.listed(bot), ['files.read'], 'the binding is still there')
    for (const verb of ['disable', 'enable']) {
      t.match(await mcp(verb, 'file'), { code: 1, out: '', err: /did you mean files\?/ })
    }
    const rows = await stage.rows({ action: 'mcp_resource.updated', order: 'asc' })
    const switched = rows.filter(({ detail }) => 'fields' in detail)
    t.match(switched, [{ detail: { fields: { enabled: false } } }, { detail: { fields: { enabled: true } } }])
    t.equal(switched.length, 2, 'one row each')
  },
)
