import t from 'tap'
import { type Identity, type TestGateway, testGateway } from '../../support/gateway.ts'
import { type Jar, signedInBySecret } from '../../support/oidc/jar.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

/** A browser before the page of an agent. */
class Form {
  readonly #jar: Jar
  readonly #path: string
  #fields: Record<string, string> = {}

  constructor(jar: Jar, path: string) {
    this.#jar = jar
    this.#path = path
  }

  /** Reads the hidden fields of the page, as a browser has them. */
  async open(): Promise<string> {
    const { text } = await this.#jar.ask('GET', this.#path)
    return this.read(text)
  }

  read(text: string): string {
    const [, form = ''] = /<form[^>]*data-rehearse[^>]*>([\s\S]*?)<\/form>/.exec(text) ?? []
    const hidden = [...form.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)]
    this.#fields = Object.fromEntries(
      hidden.map(([, name = '', value = '']) => [name, value.replaceAll('&quot;', '"')]),
    )
    return form
  }

  send(fields: Readonly<Record<string, string>>, headers: Readonly<Record<string, string>> = {}) {
    return this.#jar.send(`${this.#path}/capabilities`, { ...this.#fields, ...fields }, headers)
  }
}

const heldBy = async (gateway: TestGateway, { id }: Pick<Identity, 'id'>): Promise<readonly string[]> =>
  (await gateway.admin('GET', `/v1/admin/agents/${id}`)).json.capabilities

const DAY_MS = 86_400_000

await t.test(
  '§4.4 the form replaces the set of an agent, a user and a workload, with one row <type>.capabilities_set',
  async (t) => {
    const gateway = await testGateway(t)
    const jar = await signedInBySecret(gateway)
    await gateway.enroll('bot', ['llm.chat'])
    await gateway.admin('POST', '/v1/admin/users', { user_name: 'ada' })
    await gateway.admin('POST', '/v1/admin/workloads', { workload_name: 'nightly' })
    for (const [plural, type, id] of [
      ['agents', 'agent', 'acme::bot'],
      ['users', 'user', 'acme::user::ada'],
      ['workloads', 'workload', 'acme::workload::nightly'],
    ] as const) {
      const form = new Form(jar, `/proxy/${plural}/${encodeURIComponent(id)}`)
      t.match(await form.open(), />Update</)
      const sent = await form.send({ capabilities: ' llm.chat ,mcp.tools.list,, llm.chat,' })
      t.equal(sent.status, 303, sent.text)
      t.equal(sent.headers.location, `/proxy/${plural}/${encodeURIComponent(id)}?notice=updated`)
      t.match((await jar.ask('GET', String(sent.headers.location))).text, 'One row in the ledger says so')
      const { json } = await gateway.admin('GET', `/v1/admin/${plural}/${id}`)
      t.same(json.capabilities, ['llm.chat', 'mcp.tools.list'])
      const rows = await gateway.rows({ action: `${type}.capabilities_set` })
      t.equal(rows.length, 1)
      t.match(rows[0], { principal_id: 'admin', status: 'success' })
      t.same(rows[0]?.detail.capabilities, ['llm.chat', 'mcp.tools.list'], 'the full new list')
    }
    const emptied = new Form(jar, '/proxy/agents/acme::bot')
    await emptied.open()
    t.equal((await emptied.send({ capabilities: '' })).status, 303)
    t.same(
      (await gateway.admin('GET', '/v1/admin/agents/acme::bot')).json.capabilities,
      [],
      'an empty box is the empty set',
    )
  },
)

await t.test(
  'what would have been refused is shown first, changes nothing, and is made by a second button',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'reports.read'])
    for (let calls = 0; calls < 3; calls += 1)
      t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const jar = await signedInBySecret(gateway)
    const form = new Form(jar, '/proxy/agents/acme::bot')
    await form.open()
    const asked = await form.send({ capabilities: 'reports.read' })
    t.equal(asked.status, 200)
    t.match(asked.text, 'Update: 3 calls of the last 30 days would be refused')
    t.match(asked.text, '3 calls would have been refused')
    t.match(asked.text, />reports.read<\/textarea>/, 'what was typed is kept')
    t.same(await heldBy(gateway, bot), ['llm.chat', 'reports.read'], 'nothing changed')
    t.same(await gateway.rows({ action: 'agent.capabilities_set' }), [])

    const preview = await form.send({ capabilities: 'reports.read', preview: 'yes', confirm: 'yes' })
    t.equal(preview.status, 200, 'a preview changes nothing, whatever else is sent')
    t.same(await heldBy(gateway, bot), ['llm.chat', 'reports.read'])

    form.read(asked.text)
    t.equal((await form.send({ capabilities: 'reports.read' })).status, 303)
    t.same(await heldBy(gateway, bot), ['reports.read'])
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 403)
  },
)

await t.test(
  '§7 a token that breaks the rules is 422: what was typed is kept, and the token named',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const form = new Form(jar, '/proxy/agents/acme::bot')
    await form.open()
    for (const [typed, named] of [
      ['llm.chat, Bad-Token', 'Bad-Token'],
      ['llm.chat, <script>alert(1)</script>', '&lt;script&gt;alert(1)&lt;/script&gt;'],
      ['admin.read', 'admin.read'],
      [Array.from({ length: 65 }, (_, n) => `t.n${n}`).join(','), 'The set'],
    ] as const) {
      const sent = await form.send({ capabilities: typed })
      t.equal(sent.status, 422, typed)
      const [, problem = ''] = /<ul class="problem"[^>]*>([\s\S]*?)<\/ul>/.exec(sent.text) ?? []
      t.match(problem, `<code>${named}</code>`)
      t.match(sent.text, `>${typed.replaceAll('<', '&lt;').replaceAll('>', '&gt;')}</textarea>`)
    }
    t.same(await heldBy(gateway, bot), ['llm.chat'])
    t.same(await gateway.rows({ action: 'agent.capabilities_set' }), [])
  },
)

await t.test('two operators cannot overwrite each other: the second sees both versions', async (t) => {
  const gateway = await testGateway(t)
  const bot = await gateway.enroll('bot', [])
  const [one, other] = [await signedInBySecret(gateway), await signedInBySecret(gateway)]
  const [mine, theirs] = [
    new Form(one, '/proxy/agents/acme::bot'),
    new Form(other, '/proxy/agents/acme::bot'),
  ]
  await mine.open()
  await theirs.open()
  t.equal((await mine.send({ capabilities: 'llm.chat' })).status, 303)
  const stale = await theirs.send({ capabilities: 'mcp.tools.list' })
  t.equal(stale.status, 412)
  t.match(stale.text, 'Somebody else has changed it in the meantime')
  t.match(stale.text, /Stored now<\/dt><dd><span class="token">llm\.chat/)
  t.match(stale.text, /Typed by you<\/dt><dd><span class="token">mcp\.tools\.list/)
  t.same(await heldBy(gateway, bot), ['llm.chat'])
  theirs.read(stale.text)
  const again = await theirs.send({ capabilities: 'llm.chat, mcp.tools.list' })
  t.equal(again.status, 303)
  t.same(await heldBy(gateway, bot), ['llm.chat', 'mcp.tools.list'])
})

await t.test(
  'the second press makes the set that was shown: whoever edits it meanwhile sees what the other one would do',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'a.b', 'c.d'])
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const form = new Form(await signedInBySecret(gateway), '/proxy/agents/acme::bot')
    await form.open()
    const shown = await form.send({ capabilities: 'a.b' })
    t.match(shown.text, 'Update: 1 call of the last 30 days would be refused')
    form.read(shown.text)
    t.match(shown.text, 'Nothing has changed yet')
    for (const [capabilities, more] of [
      ['', {}],
      ['c.d', {}],
      ['a.b', { shown: 'another' }],
      ['a.b', { confirm: '' }],
    ] as const) {
      const other = await form.send({ capabilities, ...more })
      t.equal(other.status, 200, `"${capabilities}" was not shown`)
      t.match(other.text, 'Update: 1 call of the last 30 days would be refused')
    }
    t.same(await heldBy(gateway, bot), ['llm.chat', 'a.b', 'c.d'], 'nothing changed')
    t.equal((await form.send({ capabilities: ' a.b,' })).status, 303, 'the same set, written otherwise')
    t.same(await heldBy(gateway, bot), ['a.b'])
  },
)

await t.test(
  'a form that comes back for a bad token is about the state that it was typed about',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', [])
    const form = new Form(await signedInBySecret(gateway), '/proxy/agents/acme::bot')
    await form.open()
    await gateway.admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: ['llm.chat'] })
    const bad = await form.send({ capabilities: 'Bad-Token' })
    t.equal(bad.status, 422)
    form.read(bad.text)
    t.equal((await form.send({ capabilities: 'a.b' })).status, 412)
    t.same(await heldBy(gateway, bot), ['llm.chat'])
  },
)

await t.test(
  'what is held says when it was last used, and the least set is typed in by a link, which changes nothing',
  async (t) => {
    let at = Date.now()
    const gateway = await testGateway(t, { clock: () => at })
    const bot = await gateway.enroll('bot', ['llm.chat', 'reports.read'])
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const heldNow = async (): Promise<string> => {
      at += 1_000
      return (await (await signedInBySecret(gateway)).ask('GET', '/proxy/agents/acme::bot/usage')).text
    }
    const fresh = /reports\.read<\/span> <span class="badge">granted <time[^>]*>(.*?)<\/time>, not used yet</
    t.equal(fresh.exec(await heldNow())?.[1], 'just now')
    at += 3 * DAY_MS
    const path = '/v1/admin/agents/acme::bot'
    await gateway.admin('PATCH', `${path}/capabilities`, {
      capabilities: ['llm.chat', 'reports.read', 'a.b'],
    })
    const later = await heldNow()
    t.equal(fresh.exec(later)?.[1], '3 d ago', 'another grant does not make it new')
    t.match(later, /a\.b<\/span> <span class="badge">granted <time[^>]*>just now</)
    await gateway.admin('PATCH', `${path}/capabilities`, { capabilities: ['llm.chat', 'reports.read'] })
    at += 28 * DAY_MS
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const text = await heldNow()
    const jar = await signedInBySecret(gateway)
    t.match(text, /llm\.chat<\/span> <span class="badge">used /)
    t.match(text, /reports\.read<\/span> <span class="badge off">unused for 30 days</)
    const { json } = await gateway.admin('GET', `${path}/usage?since=2020-01-01T00:00:00Z`)
    t.same(
      json.capabilities.map(({ capability, granted_at: since }: never) => [capability, since !== null]),
      [
        ['llm.chat', true],
        ['reports.read', true],
      ],
    )
    const [, link = ''] = /href="([^"]+)">Put it into the form</.exec(text) ?? []
    t.equal(link, '/proxy/agents/acme%3A%3Abot?set=llm.chat')
    const typed = (await jar.ask('GET', link)).text
    t.match(typed, '>llm.chat</textarea>')
    t.match(typed, 'data-rehearse="now"', 'a script rehearses it at once')
    t.same(await heldBy(gateway, bot), ['llm.chat', 'reports.read'])
    const long = `<b>${'x'.repeat(500)}`
    const odd = await jar.ask('GET', `/proxy/agents/acme::bot?set=${encodeURIComponent(long)}`)
    t.match(odd.text, `>&lt;b&gt;${'x'.repeat(500)}</textarea>`, 'whatever a link says is text')
  },
)

await t.test(
  'what breaks an expectation is made with a reason alone, also where it refuses calls',
  async (t) => {
    const files = { '90-expect.yaml': 'plugin: expect\nexpect: ["acme::bot may use model gpt-4o-mini"]\n' }
    const gateway = await testGateway(t, { files })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const form = new Form(await signedInBySecret(gateway), '/proxy/agents/acme::bot')
    await form.open()
    const shown = await form.send({ capabilities: '' })
    t.match(shown.text, 'Update: 1 call of the last 30 days would be refused')
    form.read(shown.text)
    const broken = await form.send({ capabilities: '' })
    t.equal(broken.status, 409, broken.text)
    t.match(broken.text, 'acme::bot may use model gpt-4o-mini')
    t.match(broken.text, 'name="force_reason"')
    t.notMatch(broken.text, 'force=true', 'the form speaks of itself')
    t.same(await heldBy(gateway, bot), ['llm.chat'])
    form.read(broken.text)
    t.equal((await form.send({ capabilities: '', force_reason: '' })).status, 409, 'not without a reason')
    const forced = await form.send({ capabilities: '', force_reason: 'it is being retired' })
    t.equal(forced.status, 303, forced.text)
    t.match((await gateway.rows({ action: 'agent.capabilities_set' }))[0]?.detail, {
      forced: { reason: 'it is being retired' },
    })
  },
)

await t.test(
  'threat 20 CSRF: no form of the dashboard does anything without its own session, its token and a page of ours',
  async (t) => {
    const gateway = await testGateway(t)
    await gateway.enroll('bot', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const other = await signedInBySecret(gateway)
    const csrfOf = async (one: Jar): Promise<string> => (await one.ask('GET', '/v1/admin/session')).json.csrf
    const [csrf, foreign] = [await csrfOf(jar), await csrfOf(other)]
    const before = (await gateway.rows({ order: 'desc', limit: 1 }))[0]?.seq
    const forms: readonly (readonly [string, Record<string, string>])[] = [
      ['/proxy/agents', { agent_name: 'mallory', capabilities: 'llm.chat' }],
      ['/proxy/agents/acme::bot/capabilities', { capabilities: '', confirm: 'yes' }],
      ['/proxy/agents/acme::bot/candidate', { capabilities: '' }],
      ['/proxy/agents/acme::bot/candidate/promote', {}],
      ['/proxy/agents/acme::bot/candidate/remove', {}],
      ['/proxy/agents/acme::bot/erase', { name: 'bot' }],
      ['/proxy/agents/acme::bot/deactivate', {}],
      ['/proxy/operators', { operator_name: 'mallory', capabilities: 'admin.read' }],
      [
        '/proxy/settings/secret',
        { secret: 'correct-horse-of-mallory', secret_again: 'correct-horse-of-mallory' },
      ],
      ['/proxy/settings/secret/disable', {}],
      ['/proxy/settings/modes', { egress_dpop_mode: 'required' }],
      ['/proxy/tools/mcpr_0/bindings/mcpb_0/revoke', {}],
      ['/proxy/pki', { ca_pem: 'x', kind: 'spiffe' }],
      ['/proxy/pki/00/detach', { lock_out: 'true' }],
      ['/proxy/pki/00/vouch', { as: '00' }],
      ['/proxy/agents/acme::bot/trusted-cas', { digest: '00' }],
      ['/proxy/agents/acme::bot/trusted-cas/00/withdraw', {}],
      ['/proxy/tools/mcpr_0/bindings', { agent_id: 'acme::bot' }],
    ]
    for (const [path, fields] of forms) {
      for (const [token, headers, why] of [
        ['', {}, 'no token'],
        [foreign, {}, "another session's token"],
        [csrf, { origin: 'https://evil.example' }, 'another site'],
        [csrf, { origin: 'null' }, 'no site'],
        [csrf, { 'sec-fetch-site': 'cross-site' }, 'another site, as the browser says'],
        [csrf, { 'sec-fetch-site': 'same-site' }, 'a neighbour'],
      ] as const) {
        const sent = await jar.send(path, { ...fields, ...(token && { csrf: token }) }, headers)
        t.equal(sent.status, 403, `${path}: ${why}`)
      }
      const asJson = await jar.ask('POST', path, { 'x-csrf-token': csrf }, { ...fields, csrf })
      t.equal(asJson.status, 400, `${path}: no form`)
      const nobody = await gateway.call(null, 'POST', path, {
        headers: { 'content-type': 'application/x-www-form-urlencoded' },
        body: new URLSearchParams({ ...fields, csrf }).toString(),
      })
      t.equal(nobody.status, 303, `${path}: nobody is signed in`)
      t.equal(nobody.headers.location, '/proxy/sign-in')
    }
    t.equal((await gateway.rows({ order: 'desc', limit: 1 }))[0]?.seq, before, 'no row, and so no change')
  },
)
