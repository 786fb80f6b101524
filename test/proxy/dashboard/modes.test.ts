import { join } from 'node:path'
import t from 'tap'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'
import { operatorNamed } from '../../support/operators.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }

await t.test(
  'each mode says which line of which file it comes from, and a rehearsal of another one which calls it would have refused',
  async (t) => {
    const files = { '20-dpop.yaml': '# ours\nplugin: dpop\n\negress_dpop_mode: optional\n' }
    const gateway = await testGateway(t, { files })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    for (let calls = 0; calls < 2; calls += 1)
      t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
    const jar = await signedInBySecret(gateway)
    const page = (await jar.ask('GET', '/proxy/settings')).text
    const dpop = join(gateway.pluginsDir, '20-dpop.yaml')
    t.match(page, `${dpop}:4</code>`)
    t.match(page, /it is not set in<\/span> <code[^>]*>[^<]*20-dpop\.yaml</)
    t.match(page, 'its plugin has no file', 'there is no 60-mcp.yaml')

    const done = await press(jar, page, 'Rehearse', {
      egress_dpop_mode: 'required',
      no_downgrade: 'false',
      enforce_tools_call: 'true',
    })
    t.equal(done.status, 200, done.text)
    t.match(done.text, '2 calls would have been refused')
    t.match(done.text, `>egress_dpop_mode: required</code> at <code class="copy" tabindex="0">${dpop}:4<`)
    t.match(done.text, '>enforce_tools_call: true</code> into a file of its plugin')
    t.notMatch(done.text, '>no_downgrade: ')
    t.match(done.text, /<option selected>required<\/option>/, 'what was chosen is kept')
    const rows = await gateway.rows({ action: 'rehearsal.done' })
    t.equal(rows.length, 1)
    t.match(rows[0]?.detail, { newly_refused: 2 })
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)

    const same = { egress_dpop_mode: 'optional', no_downgrade: 'false', enforce_tools_call: 'false' }
    for (const [typed, says] of [
      [same, 'are all already in force'],
      [{ ...same, egress_dpop_mode: 'sometimes' }, 'egress_dpop_mode'],
      [{ ...same, no_downgrade: 'perhaps' }, 'no_downgrade'],
    ] as const) {
      const wrong = await press(jar, page, 'Rehearse', typed)
      t.equal(wrong.status, 422, says)
      t.match(wrong.text, says)
    }
    t.equal((await gateway.rows({ action: 'rehearsal.done' })).length, 1)
  },
)

await t.test('a mode that the environment sets says so, and where to change it', async (t) => {
  const gateway = await testGateway(t, { settings: { MCP_PROXY_EGRESS_DPOP_MODE: 'off' } })
  const jar = await signedInBySecret(gateway)
  const page = (await jar.ask('GET', '/proxy/settings')).text
  t.match(page, /<td>off<\/td><td><code>MCP_PROXY_EGRESS_DPOP_MODE<\/code>, which overrides/)
  const typed = { egress_dpop_mode: 'optional', no_downgrade: 'false', enforce_tools_call: 'false' }
  const done = await press(jar, page, 'Rehearse', typed)
  t.match(done.text, 'MCP_PROXY_EGRESS_DPOP_MODE=optional</code> and restart')
})

await t.test(
  'the files in force are shown by path, option, line and digest, without a value of theirs',
  async (t) => {
    const gateway = await testGateway(t)
    const { text } = await (await signedInBySecret(gateway)).ask('GET', '/proxy/settings')
    for (const file of ['10-pin.yaml', '20-dpop.yaml', '30-capability.yaml', '40-audit.yaml', '50-llm.yaml'])
      t.match(text, join(gateway.pluginsDir, file))
    t.match(text, '<code>providers</code> <span class="faint">line 4</span>')
    t.match(text, '<code>egress_dpop_mode</code> <span class="faint">line 2</span>')
    const digest = (await gateway.rows({ action: 'config.loaded' }))[0]?.detail.digest
    t.ok(typeof digest === 'string' && text.includes(digest))
    for (const secret of ['sk-upstream-openai', 'sk-upstream-anthropic', 'correct-horse'])
      t.notMatch(text, secret)
  },
)

await t.test('who may not grant sees the modes, and what a rehearsal needs', async (t) => {
  const gateway = await testGateway(t)
  const jar = await signedInAs(gateway, await operatorNamed(gateway, 'reader', ['admin.read']))
  const { text } = await jar.ask('GET', '/proxy/settings')
  t.match(text, 'Rehearsing another mode needs <code>admin.grant</code>')
  t.same(
    buttonsIn(text).filter(({ label }) => label === 'Rehearse'),
    [],
  )
  const { csrf } = (await jar.ask('GET', '/v1/admin/session')).json
  t.equal((await jar.send('/proxy/settings/modes', { csrf, egress_dpop_mode: 'required' })).status, 403)
})
