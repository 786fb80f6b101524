import t from 'tap'
import { SECTIONS } from '../../../proxy/dashboard/frame/frame.ts'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { testGateway } from '../../support/gateway.ts'
import { changingServer, tool } from '../../support/mcp/admin-server.ts'
import { Jar, signedInBySecret } from '../../support/oidc/jar.ts'
import { csrfOf } from '../../support/wizard.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

await t.test(
  '§4.4 every page is there for who is signed in, loads nothing from elsewhere and works without a script',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    t.equal((await gateway.call(bot, 'POST', '/v1/mcp', { body: {} })).status < 500, true)
    const jar = await signedInBySecret(gateway)
    const more = [
      '/proxy/agents/acme%3A%3Abot',
      '/proxy/agents/acme::bot',
      '/proxy/agents/acme::bot/usage',
      '/proxy/agents/acme::bot/first-call',
    ]
    for (const path of [...SECTIONS.map(([path]) => path), ...more]) {
      const page = await jar.ask('GET', path)
      t.equal(page.status, 200, `${path}: ${page.text.slice(0, 400)}`)
      t.match(
        page.headers['content-security-policy'],
        /^default-src 'none'; script-src 'self'; style-src 'self'/,
      )
      t.equal(page.headers['cache-control'], 'no-store', path)
      t.notMatch(page.text, /style=|onclick|<style|<script>/, `${path}: nothing inline`)
      const loaded = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, url = '']) => url)
      t.ok(loaded.length > 10)
      t.same(
        loaded.filter((url) => !/^(?:\/|\?|#|data:,)/.test(url)),
        [],
        `${path}: nothing from elsewhere`,
      )
    }
    const [, style = ''] =
      /href="(\/proxy\/assets\/[^"]+\.css)"/.exec((await jar.ask('GET', '/proxy')).text) ?? []
    const asset = await jar.ask('GET', style)
    t.equal(asset.status, 200)
    t.match(asset.headers['cache-control'], /immutable/)
  },
)

await t.test('a page asks who is signed in, and comes back to where one wanted to go', async (t) => {
  const gateway = await testGateway(t)
  const jar = new Jar(gateway)
  for (const [path] of SECTIONS) {
    const sent = await jar.ask('GET', `${path}?x=1`)
    t.equal(sent.status, 303, path)
    t.equal(sent.headers.location, `/proxy/sign-in?next=${encodeURIComponent(`${path}?x=1`)}`)
  }
  t.equal((await jar.ask('GET', '/proxy/capabilities.json')).status, 401)
  const secret = await gateway.call(null, 'GET', '/proxy/agents', {
    headers: { 'x-admin-secret': 'correct-horse-battery' },
  })
  t.equal(secret.status, 303, 'the secret in a header opens no page')
})

await t.test('Activity tells each call in one line, and its why page gate by gate', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const none = await gateway.enroll('none', [])
  const ok = await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
  const refused = await gateway.call(none, 'POST', '/v1/chat/completions', { body: CHAT })
  const jar = await signedInBySecret(gateway)
  const activity = (await jar.ask('GET', '/proxy/activity')).text
  t.match(activity, /acme::bot/)
  t.match(activity, /acme::none/)
  const narrowed = (await jar.ask('GET', '/proxy/activity?principal=acme::none&status=denied')).text
  t.match(narrowed, /capability_missing/)
  const [, grant = ''] = /href="([^"]+)">Grant…</.exec(narrowed) ?? []
  t.equal(grant, '/proxy/agents/acme%3A%3Anone?add=llm.chat')
  t.match((await jar.ask('GET', grant)).text, />llm.chat<\/textarea>/, 'typed in, and not granted yet')
  t.notMatch(narrowed, /<td>acme::bot/)
  const why = (await jar.ask('GET', `/proxy/activity/${String(refused.headers['x-request-id'])}`)).text
  t.match(why, /✓ certificate<\/b> <code class="faint">pin</)
  t.match(why, /✗ capability/)
  t.match(why, /llm\.chat/)
  const allowed = (await jar.ask('GET', `/proxy/activity/${String(ok.headers['x-request-id'])}`)).text
  t.match(allowed, /✓ capability/)
  t.match(allowed, /Capabilities held then<\/dt><dd><span class="token">llm\.chat</)
  t.match(
    allowed,
    />agent: created<\/a> <code class="faint">agent\.created<\/code> of admin/,
    'by the row that granted it',
  )
  t.equal((await jar.ask('GET', '/proxy/activity/req_nothing')).status, 404)
  t.equal((await jar.ask('GET', '/proxy/activity?since=never')).status, 422)
})

await t.test('/proxy/capabilities.json says who holds and what demands each token', async (t) => {
  const gateway = await testGateway(t)
  await gateway.enroll('bot', ['llm.chat', 'reports.read'])
  const { json } = await (await signedInBySecret(gateway)).ask('GET', '/proxy/capabilities.json')
  const named = new Map(json.capabilities.map((one: { capability: string }) => [one.capability, one]))
  t.match(named.get('llm.chat'), { kind: 'built_in', held_by: 1 })
  t.match(named.get('reports.read'), { kind: 'operator', held_by: 1, demanded_by: [] })
})

await t.test(
  'a list is searched by name, capability, expiry and use, and says what it does not understand',
  async (t) => {
    const gateway = await testGateway(t)
    await gateway.enroll('writer', ['llm.chat'])
    await gateway.enroll('reader', ['mcp.tools.list'])
    const jar = await signedInBySecret(gateway)
    const found = async (q: string): Promise<readonly string[]> => {
      const page = await jar.ask('GET', `/proxy/agents?${new URLSearchParams({ q }).toString()}`)
      t.equal(page.status, 200, q)
      return [...page.text.matchAll(/<a class="row"[^>]*>([^<]+)</g)].map(([, name = '']) => name)
    }
    t.same(await found('writ'), ['writer'])
    t.same(await found('cap:mcp.tools.list'), ['reader'])
    t.same(await found('cap:llm.chat writ is:active'), ['writer'])
    t.same(await found('expires:30d'), [])
    t.same(await found('expires:<120d'), ['reader', 'writer'])
    t.same(await found('unused:1h'), ['reader', 'writer'])
    t.same(await found('is:inactive'), [])
    for (const wrong of ['expires:soon', 'is:happy'])
      t.equal(
        (await jar.ask('GET', `/proxy/agents?${new URLSearchParams({ q: wrong }).toString()}`)).status,
        422,
        wrong,
      )
  },
)

await t.test('a list has a hundred principals at once, here and in the API, and leads on', async (t) => {
  const gateway = await testGateway(t)
  for (let at = 0; at < 101; at += 1) await gateway.admin('POST', '/v1/admin/users', { user_name: `u${at}` })
  const { json, headers } = await gateway.admin('GET', '/v1/admin/users')
  t.equal(json.users.length, 100)
  t.equal(json.total, 101)
  const [, next = ''] = /^<([^>]+)>; rel="next"$/.exec(String(headers.link)) ?? []
  t.same(
    (await gateway.admin('GET', next)).json.users.map(({ name }: { name: string }) => name),
    ['u0'],
  )
  const jar = await signedInBySecret(gateway)
  const { text } = await jar.ask('GET', '/proxy/users')
  t.equal([...text.matchAll(/<a class="row"/g)].length, 100)
  const [, older = ''] = /<a rel="next" href="([^"]+)"/.exec(text) ?? []
  const last = await jar.ask('GET', `/proxy/users${older.replaceAll('&amp;', '&')}`)
  t.same(
    [...last.text.matchAll(/<a class="row"[^>]*>([^<]+)</g)].map(([, name]) => name),
    ['u0'],
  )
})

await t.test(
  'Activity leads on through all calls, each once and with its outcome, however few fit',
  async (t) => {
    const gateway = await testGateway(t)
    const [bot, none] = [await gateway.enroll('bot', ['llm.chat']), await gateway.enroll('none', [])]
    // Refusals are few: many of one kind would be recorded together.
    for (let at = 0; at < 130; at += 1) {
      const isRefused = at % 30 === 0
      const asked = await gateway.call(isRefused ? none : bot, 'POST', '/v1/chat/completions', { body: CHAT })
      t.equal(asked.status, isRefused ? 403 : 200)
    }
    const jar = await signedInBySecret(gateway)
    const seen = async (query: string): Promise<readonly string[]> => {
      const lines: string[] = []
      for (let path = `/proxy/activity?${query}`; path !== ''; ) {
        const { text } = await jar.ask('GET', path)
        const rows = [...text.matchAll(/<tr><td>[\s\S]*?<\/tr>/g)].map(([row]) => row)
        t.ok(rows.length <= 100)
        for (const row of rows) {
          const [, id = ''] = /\/proxy\/activity\/(req_[0-9a-f]+)/.exec(row) ?? []
          lines.push(id)
          if (row.includes('>allowed<')) t.match(row, '7 + 3', `${id} has its outcome`)
        }
        path = (/<a rel="next" href="([^"]+)"/.exec(text)?.[1] ?? '').replaceAll('&amp;', '&')
      }
      return lines.filter((id) => id !== '')
    }
    const every = await seen('action=egress_llm_chat')
    t.equal(every.length, 130)
    t.equal(new Set(every).size, 130, 'each once')
    t.equal((await seen('action=egress_llm_chat&status=denied')).length, 5)
    t.equal((await seen('principal=acme::none&reason=capability_missing')).length, 5)
    t.equal((await seen('action=agent.created')).length, 2)
    t.same(await seen('model=no-such-model'), [])
  },
)

await t.test(
  'Attention says that all is well, or what needs a person: a certificate that ends',
  async (t) => {
    const now = Date.now()
    let at = now
    const gateway = await testGateway(t, { clock: () => at })
    const jar = await signedInBySecret(gateway)
    t.match((await jar.ask('GET', '/proxy')).text, 'All is well')
    await gateway.enroll('bot', [])
    at = now + 61 * 86_400_000
    const later = await signedInBySecret(gateway)
    const attention = (await later.ask('GET', '/proxy')).text
    t.match(attention, 'Certificates that end within 30 days')
    t.match(attention, '/proxy/agents/acme%3A%3Abot')
  },
)

await t.test(
  'a server is registered, moved, switched off and on, bound to, its changed tool rejected, and removed, by forms',
  async (t) => {
    const gateway = await testGateway(t, { settings: { MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS: 'true' } })
    await gateway.enroll('bot', [])
    const server = await changingServer(t, tool('read'))
    const jar = await signedInBySecret(gateway)
    const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
    const wrong = await jar.send('/proxy/tools', { csrf, name: 'No Name', endpoint_url: 'x' })
    t.equal(wrong.status, 422)
    for (const label of ['Name', 'Address']) t.match(wrong.text, `<code>${label}</code>`)
    const sent = await jar.send('/proxy/tools', {
      csrf,
      name: 'files',
      endpoint_url: server.url,
      required_capability: '',
    })
    t.match(sent.headers.location, /^\/proxy\/tools\/mcpr_[0-9a-f]+\?notice=registered$/, sent.text)
    const [, path = ''] =
      /<a class="row" href="([^"]+)">files</.exec((await jar.ask('GET', '/proxy/tools')).text) ?? []
    for (const [action, says] of [
      ['refresh', 'was read'],
      ['disable', 'nobody can reach it'],
      ['enable', 'can reach it again'],
    ] as const) {
      const { status, headers, text } = await jar.send(`${path}/${action}`, { csrf })
      t.equal(status, 303, text)
      t.match((await jar.ask('GET', String(headers.location))).text, says)
    }
    t.match((await jar.ask('GET', path)).text, '<code>files.read</code>')
    t.equal((await jar.send(`${path}/bindings`, { csrf, agent_id: 'acme::nobody' })).status, 422)
    t.equal((await jar.send(`${path}/bindings`, { csrf, agent_id: 'acme::bot' })).status, 303)
    const bot = (await jar.ask('GET', '/proxy/agents/acme::bot')).text
    const [, revoke = ''] = /action="([^"]+\/revoke)"/.exec(bot) ?? []
    t.equal((await jar.send(revoke, { csrf })).status, 303)
    const other = await changingServer(t, tool('read'))
    const address = { csrf, endpoint_url: 'nowhere' }
    const typo = await jar.send(`${path}/address`, address)
    t.match(
      typo.text,
      /value="nowhere" aria-invalid="true"/,
      'an address with a fault is corrected where it is',
    )
    t.equal((await jar.send(`${path}/address`, { csrf, endpoint_url: other.url })).status, 303)
    const shown = (await jar.ask('GET', path)).text
    t.match(shown, other.url)
    t.match(shown, '<option value="acme::bot">bot</option>', 'who may be bound is suggested')
    other.list([tool('read', 'Reads, and sends it elsewhere.')])
    await jar.send(`${path}/refresh`, { csrf })
    const changed = (await jar.ask('GET', path)).text
    t.equal((await press(jar, changed, 'Reject it', { digest: '0'.repeat(64) })).status, 412)
    const rejected = await press(jar, changed, 'Reject it')
    t.match(rejected.headers.location, /notice=rejected/, rejected.text)
    t.match((await jar.ask('GET', path)).text, 'read was rejected')
    t.notMatch((await jar.ask('GET', '/proxy')).text, 'Read and approve', 'nobody is asked again')
    await jar.send(`${path}/refresh`, { csrf })
    t.notMatch((await jar.ask('GET', '/proxy')).text, 'Read and approve', 'also when it is read again')
    t.equal((await press(jar, changed, 'Reject it')).status, 412, 'the page is of before')
    other.list([tool('read', 'Reads, and sends it to yet another place.')])
    await jar.send(`${path}/refresh`, { csrf })
    t.match((await jar.ask('GET', '/proxy')).text, 'Read and approve', 'another definition asks again')
    const waits = (await jar.ask('GET', path)).text
    t.equal((await press(jar, waits, 'Reject it')).status, 303)
    const late = (await jar.ask('GET', path)).text
    t.equal((await press(jar, late, 'Approve what I have read')).status, 303, 'and may be approved after all')
    t.notMatch((await jar.ask('GET', path)).text, 'rejected')
    const removed = await press(jar, (await jar.ask('GET', path)).text, 'Remove it')
    t.equal(removed.headers.location, '/proxy/tools?notice=removed', removed.text)
    t.equal((await jar.ask('GET', path)).status, 404)
    const actions = new Set((await gateway.rows({})).map(({ action }) => action))
    for (const action of [
      'mcp_resource.created',
      'mcp_resource.updated',
      'mcp_resource.deleted',
      'mcp_binding.created',
      'mcp_binding.revoked',
    ])
      t.ok(actions.has(action), action)
  },
)

await t.test('numbers agree: between pages, and with the API', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', ['llm.chat', 'reports.read'])
  await gateway.enroll('other', ['llm.chat'])
  await gateway.admin('DELETE', '/v1/admin/agents/acme::other')
  const body = { capabilities: ['llm.chat', 'reports.read'] }
  for (const [plural, name] of [
    ['users', { user_name: 'ada' }],
    ['workloads', { workload_name: 'nightly' }],
    ['workloads', { workload_name: 'daily' }],
  ] as const)
    t.equal((await gateway.admin('POST', `/v1/admin/${plural}`, { ...body, ...name })).status, 201)
  const none = await gateway.enroll('none', [])
  for (const who of [bot, bot, bot, none, none])
    await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  const jar = await signedInBySecret(gateway)
  const textOf = async (path: string): Promise<string> => (await jar.ask('GET', path)).text
  const linesIn = (text: string): number => [...text.matchAll(/<a class="row"/g)].length
  const { json } = await jar.ask('GET', '/proxy/capabilities.json')
  const { held_by: holders } = json.capabilities.find(
    ({ capability }: { capability: string }) => capability === 'llm.chat',
  )
  t.equal(holders, 5, 'the deactivated one too')
  const counted = [...(await textOf('/proxy/capabilities')).matchAll(/href="([^"]+q=cap[^"]+)">(\d+)\u00a0/g)]
  for (const [, href = '', count] of counted) t.equal(linesIn(await textOf(href)), Number(count), href)
  const lists = ['agents', 'users', 'workloads'].map((plural) => `/proxy/${plural}?q=cap%3Allm.chat`)
  const ofChat = counted.filter(([, href = '']) => lists.includes(href))
  t.equal(
    ofChat.reduce((sum, [, , count]) => sum + Number(count), 0),
    holders,
    'all of them are led to',
  )
  t.equal((await gateway.admin('GET', '/v1/admin/agents?q=cap:llm.chat')).json.length, 2)

  const { json: usage } = await gateway.admin('GET', '/v1/admin/agents/acme::bot/usage')
  t.equal(usage.decisions, 3)
  t.match(await textOf('/proxy/agents/acme::bot/usage'), `${usage.decisions} calls`)
  const own = '/proxy/activity?principal=acme::bot'
  t.equal(linesIn(await textOf(own)), usage.decisions)
  t.match(await textOf(own), '>allowed</a> 3')
  const denied = await gateway.rows({ status: 'denied' })
  t.equal(denied.length, 2)
  t.match(await textOf('/proxy/activity'), '>denied</a> 2')
  const times = [...(await textOf('/proxy')).matchAll(/<td class="number">(\d+)</g)].map(([, one]) =>
    Number(one),
  )
  t.equal(
    times.reduce((sum, one) => sum + one, 0),
    denied.length,
    'Attention counts the same',
  )
})

await t.test(
  'what is refused stays on its form, by the words of its labels and with what was typed',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    await gateway.enroll('bot', ['llm.chat'])
    const typed = {
      '/proxy/tools': { button: 'Register a server', fields: { name: 'fi"les', endpoint_url: 'htps://x<y' } },
      '/proxy/agents': {
        button: 'Enroll an agent',
        fields: { agent_name: 'bot', display_name: 'A & B', capabilities: 'llm.chat, No-Good' },
      },
      '/proxy/operators': {
        button: 'Enroll an operator',
        fields: { operator_name: 'ada', capabilities: 'x.y' },
      },
      '/proxy/pki': { button: 'Attach', fields: { ca_pem: 'no </textarea> PEM', kind: 'spiffe' } },
      '/proxy/settings': { button: 'Rotate', fields: { secret: 'short', secret_again: 'other' } },
    }
    for (const [path, { button, fields }] of Object.entries(typed)) {
      const page = (await jar.ask('GET', path)).text
      const { status, text } = await press(jar, page, button, fields)
      t.equal(status, 422, path)
      t.equal(/<h1>(.*?)<\/h1>/.exec(text)?.[1], /<h1>(.*?)<\/h1>/.exec(page)?.[1], `${path}: the same page`)
      const form = new RegExp(
        `<form method="post" action="[^"]*">(?:(?!</form>)[\\s\\S])*${button}</button>`,
      ).exec(text)?.[0]
      t.match(form, 'class="problem" role="alert"', `${path}: the form says it`)
      const again = buttonsIn(text).find(({ label }) => label === button)?.fields
      const { secret: _, secret_again: __, kind: ___, ...shown } = fields as Record<string, string>
      t.match(again, shown, `${path}: and has what was typed`)
      t.notMatch(text, 'value="short"', 'no secret among it')
    }
    const tools = (await jar.ask('GET', '/proxy/tools')).text
    const { text } = await press(jar, tools, 'Register a server', { name: 'files', endpoint_url: 'nowhere' })
    t.match(text, '<code>Address</code>', 'by the word of the label')
    t.match(text, 'value="nowhere" aria-invalid="true"', 'and marked')
    t.match(text, /<details open class="enroll">/, 'where it can be seen')
    const list = await jar.ask('GET', '/proxy/agents')
    const again = { agent_name: 'bot', capabilities: 'llm.chat' }
    const conflict = await press(jar, list.text, 'Enroll an agent', again)
    t.equal(conflict.status, 409, 'so does what nothing typed is to blame for')
    t.match(buttonsIn(conflict.text).find(({ label }) => label === 'Enroll an agent')?.fields, again)
    const gone = await jar.send('/proxy/agents/acme::nobody/deactivate', { csrf: csrfOf(list) })
    t.equal(gone.status, 404)
    t.match(gone.text, 'This did not work', 'a page that is not there shows no form')
  },
)

await t.test(
  'sign-in names the service, Proof says what it proves and to whom, and operators have ready-made sets',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = new Jar(gateway)
    t.match(
      (await jar.ask('GET', '/proxy/sign-in')).text,
      '<strong>Sallyport</strong>, the gateway of <strong>acme</strong>',
    )
    const wrong = await jar.send('/proxy/sign-in', { secret: 'not-the-secret' })
    t.match(wrong.text, 'the gateway of <strong>acme</strong>', 'also where the secret was wrong')
    const signedIn = await signedInBySecret(gateway)
    const proof = (await signedIn.ask('GET', '/proxy/proof')).text
    for (const whom of ['To an auditor', 'To the owner of an agent', 'Against whoever owns the database'])
      t.match(proof, whom)
    t.match(
      (await signedIn.ask('GET', '/proxy/operators')).text,
      'data-set="admin.read, admin.grant, admin.enroll, admin.stop"',
    )
    t.notMatch((await signedIn.ask('GET', '/proxy/agents')).text, 'data-set=')
  },
)
