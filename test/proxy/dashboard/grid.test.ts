import t, { type Test } from 'tap'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { testGateway } from '../../support/gateway.ts'
import { changingServer, tool } from '../../support/mcp/admin-server.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'

t.setTimeout(120_000)

/** A gateway with two servers, each with a tool that answers. */
async function stage(t: Test) {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } })
  const ids: string[] = []
  for (const name of ['files', 'notes']) {
    const server = await changingServer(t, tool('read'))
    const { json } = await gateway.admin('POST', '/v1/admin/mcp-resources', {
      name,
      endpoint_url: server.url,
    })
    ids.push(String(json.resource_id))
  }
  const [files = '', notes = ''] = ids
  const bind = (agent_id: string, resource_id: string) =>
    gateway.admin('POST', '/v1/admin/mcp-resources/bindings', { agent_id, resource_id })
  return { gateway, files, notes, bind }
}

const named = (page: string): readonly string[] =>
  [...page.matchAll(/<th scope="row"><a class="row"[^>]*>([^<]+)</g)].map(([, name = '']) => name)

await t.test(
  'the grid binds and releases by its cells, says first what a release would have refused, and is one row each',
  async (t) => {
    const { gateway, files, notes, bind } = await stage(t)
    const bot = await gateway.enroll('bot', ['mcp.tools.call'])
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ada', display_name: 'Ada Lovelace' })
    await bind('acme::bot', files)
    await bind('acme::user::ada', notes)
    const call = {
      jsonrpc: '2.0',
      id: 1,
      method: 'tools/call',
      params: { name: 'files.read', arguments: {} },
    }
    for (let calls = 0; calls < 2; calls += 1)
      t.equal((await gateway.call(bot, 'POST', '/v1/mcp', { body: call })).status, 200)
    const jar = await signedInBySecret(gateway)
    const page = (await jar.ask('GET', '/proxy/tools')).text
    t.same(named(page), ['bot', 'Ada Lovelace'])
    const labels = buttonsIn(page).map(({ label }) => label)
    for (const label of [
      'Unbind acme::bot from files',
      'Bind acme::bot to notes',
      'Bind acme::user::ada to files',
    ])
      t.ok(labels.includes(label), label)

    const bound = await press(jar, page, 'Bind acme::bot to notes')
    t.equal(bound.headers.location, '/proxy/tools?notice=bound', bound.text)
    t.equal((await gateway.rows({ action: 'mcp_binding.created' })).length, 3)
    const now = (await jar.ask('GET', '/proxy/tools')).text
    const unused = await press(jar, now, 'Unbind acme::bot from notes')
    t.equal(unused.headers.location, '/proxy/tools?notice=revoked', 'no call has needed it')

    const shown = await press(jar, now, 'Unbind acme::bot from files')
    t.equal(shown.status, 200, shown.text)
    t.match(shown.text, '2 calls would have been refused')
    t.equal((await gateway.rows({ action: 'mcp_binding.revoked' })).length, 1, 'nothing has changed')
    const label = 'Unbind: 2 calls of the last 30 days would be refused'
    const unnamed = await press(jar, shown.text, label, { confirm: 'yes' })
    t.equal(unnamed.status, 200, 'a press that does not name what was shown is shown it')
    const done = await press(jar, shown.text, label)
    t.equal(done.headers.location, '/proxy/tools?notice=revoked')
    t.equal((await gateway.rows({ action: 'mcp_binding.revoked' })).length, 2)
    t.equal((await press(jar, shown.text, label)).status, 404, 'it is released already')
  },
)

await t.test('who may not grant sees marks, and what it would need', async (t) => {
  const { gateway, files, bind } = await stage(t)
  await gateway.enroll('bot', [])
  await bind('acme::bot', files)
  const reader = await operatorNamed(gateway, 'reader', ['admin.read'])
  const jar = await signedInAs(gateway, reader)
  const { text } = await jar.ask('GET', '/proxy/tools')
  t.match(text, /aria-label="bound">✓/)
  t.match(text, 'Binding and unbinding need <code>admin.grant</code>')
  t.same(
    buttonsIn(text).filter(({ label }) => /^(Bind|Release)/.test(label)),
    [],
  )
})

await t.test(
  'a hundred are shown at once, each once, and any is found by a word of its id or name',
  async (t) => {
    const { gateway, files, bind } = await stage(t)
    for (let at = 0; at < 103; at += 1) {
      const display_name = at === 102 ? 'Grace Hopper' : null
      await gateway.admin('POST', '/v1/admin/users', { user_name: `u${at}`, display_name })
      await bind(`acme::user::u${at}`, files)
    }
    const jar = await signedInBySecret(gateway)
    const first = (await jar.ask('GET', '/proxy/tools')).text
    t.equal(named(first).length, 100)
    const [, next = ''] = /<a rel="next" href="([^"]+)">More/.exec(first) ?? []
    const last = (await jar.ask('GET', `/proxy/tools${next.replaceAll('&amp;', '&')}`)).text
    t.equal(named(last).length, 3)
    t.equal(new Set([...named(first), ...named(last)]).size, 103)
    t.notMatch(last, 'rel="next"')
    t.match(first, /<td class="number">103<\/td>/, 'the count is of all of them')
    t.same(named((await jar.ask('GET', '/proxy/tools?q=grace')).text), ['Grace Hopper'])
    const found = (await jar.ask('GET', '/proxy/tools?q=user::u7+acme')).text
    t.equal(named(found).length, 11)
    const bound = await press(jar, found, 'Bind acme::user::u7 to notes')
    t.equal(bound.headers.location, '/proxy/tools?q=user%3A%3Au7+acme&notice=bound', 'the view is kept')
    t.match((await jar.ask('GET', '/proxy/tools?q=nobody')).text, 'Nobody with that name is bound')
    t.equal((await jar.ask('GET', '/proxy/tools?cursor=x')).status, 422)
  },
)
