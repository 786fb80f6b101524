import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { Agent } from 'node:https'
import { join } from 'node:path'
import t from 'tap'
import { ADMIN_CAPABILITIES } from '../../../plugins/operators/capabilities.ts'
import { type Answered, ask, type Identity, type TestGateway, testGateway } from '../../support/gateway.ts'
import { Jar } from '../../support/oidc/jar.ts'
import { as, onTheMachine, operatorNamed } from '../../support/operators.ts'

/** A browser that has shown a certificate, or has not: its cookie goes with what it asks for. */
class Browser {
  readonly #gateway: TestGateway
  #cookie = ''

  constructor(gateway: TestGateway) {
    this.#gateway = gateway
  }

  async ask(
    who: Identity | null,
    method: string,
    path: string,
    fields?: Record<string, string>,
  ): Promise<Answered> {
    const answered = await this.#gateway.call(who, method, path, {
      headers: {
        ...(this.#cookie !== '' && { cookie: this.#cookie }),
        ...(fields && { 'content-type': 'application/x-www-form-urlencoded' }),
      },
      ...(fields && { body: new URLSearchParams(fields).toString() }),
    })
    const [cookie = ''] = String(answered.headers['set-cookie'] ?? '').split(';')
    if (cookie !== '') this.#cookie = cookie
    return answered
  }
}

const SIGN_IN = '/proxy/sign-in/certificate'

await t.test(
  'an operator signs in by the certificate that its browser shows, and only with it',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = await operatorNamed(gateway, 'alice', ['admin.read', 'admin.grant'])
    const bob = await operatorNamed(gateway, 'bob', ['admin.read'])
    const browser = new Browser(gateway)
    t.match((await browser.ask(alice, 'GET', '/proxy/sign-in')).text, `Sign in as ${alice.id}`)
    t.notMatch((await browser.ask(null, 'GET', '/proxy/sign-in')).text, 'Sign in as')
    t.equal((await browser.ask(alice, 'GET', '/proxy')).status, 303, 'a certificate alone opens no page')

    const sent = await browser.ask(alice, 'POST', `${SIGN_IN}?next=/proxy/agents`, {})
    t.equal(sent.status, 303, sent.text)
    t.equal(sent.headers.location, '/proxy/agents')
    const page = await browser.ask(alice, 'GET', '/proxy')
    t.equal(page.status, 200)
    t.match(page.text, 'Signed in by a certificate')
    t.equal((await browser.ask(null, 'GET', '/proxy')).status, 303, 'its cookie alone opens nothing')
    t.equal((await browser.ask(bob, 'GET', '/proxy')).status, 303, "nor with somebody else's certificate")

    const [row] = await gateway.rows({ action: 'admin.sign_in' })
    t.match(row, { principal_id: alice.id, detail: { via: 'certificate' } })
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(page.text) ?? []
    await gateway.enroll('bot', [])
    const path = '/proxy/agents/acme::bot/capabilities'
    const set = { csrf, capabilities: 'llm.chat', confirm: 'yes' }
    t.equal((await browser.ask(bob, 'POST', path, set)).status, 303, 'signed out')
    t.equal((await browser.ask(alice, 'POST', path, { ...set, csrf: 'x' })).status, 403)
    t.equal(
      (await browser.ask(alice, 'POST', path, set)).headers.location,
      '/proxy/agents/acme%3A%3Abot?notice=updated',
    )
    t.match((await gateway.rows({ action: 'agent.capabilities_set' }))[0], {
      principal_id: alice.id,
      detail: { via: 'certificate' },
    })
    t.match((await as(gateway, alice)('GET', '/v1/admin/sessions')).json.sessions, [
      { via: 'certificate', operator: alice.id },
    ])
  },
)

await t.test(
  'two people: what one has asked for waits in Attention, and the other confirms it with a button',
  async (t) => {
    const gateway = await testGateway(t, {
      files: { '70-operators.yaml': 'plugin: operators\ntwo_person: [grant]\n' },
    })
    const bot = await gateway.enroll('bot', [])
    const CAPS = ['admin.read', 'admin.grant', 'admin.audit']
    const [alice, bob] = [
      await operatorNamed(gateway, 'alice', CAPS),
      await operatorNamed(gateway, 'bob', CAPS),
    ]
    const signedIn = async (who: Identity): Promise<readonly [Browser, string]> => {
      const browser = new Browser(gateway)
      await browser.ask(who, 'POST', SIGN_IN, {})
      const { text } = await browser.ask(who, 'GET', '/proxy')
      return [browser, /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? '']
    }
    const [hers, csrf] = await signedIn(alice)
    const asked = await hers.ask(alice, 'POST', '/proxy/agents/acme::bot/capabilities', {
      csrf,
      capabilities: 'llm.chat',
    })
    t.equal(asked.headers.location, '/proxy/agents/acme%3A%3Abot?notice=proposed')
    const held = async () => (await gateway.admin('GET', `/v1/admin/agents/${bot.id}`)).json.capabilities
    t.same(await held(), [], 'nothing has changed')

    const attention = (await hers.ask(alice, 'GET', '/proxy')).text
    t.match(attention, 'asks for a second operator')
    const [, proposal = ''] = /\/proxy\/proposals\/([^/]+)\/decline/.exec(attention) ?? []
    t.notMatch(attention, `/proxy/proposals/${proposal}/confirm`, 'not by who has asked')
    t.equal((await hers.ask(alice, 'POST', `/proxy/proposals/${proposal}/confirm`, { csrf })).status, 403)
    t.same(await held(), [])

    const [his, token] = await signedIn(bob)
    t.match((await his.ask(bob, 'GET', '/proxy')).text, `/proxy/proposals/${proposal}/confirm`)
    const confirmed = await his.ask(bob, 'POST', `/proxy/proposals/${proposal}/confirm`, { csrf: token })
    t.equal(confirmed.headers.location, '/proxy?notice=confirmed')
    t.same(await held(), ['llm.chat'])
    t.match((await gateway.rows({ action: 'agent.capabilities_set' }))[0], {
      principal_id: alice.id,
      detail: { confirmed_by: bob.id },
    })
  },
)

await t.test('it ends with the certificate, and with its operator', async (t) => {
  const gateway = await testGateway(t)
  const alice = await operatorNamed(gateway, 'alice', ['admin.read'])
  const browser = new Browser(gateway)
  await browser.ask(alice, 'POST', SIGN_IN, {})
  t.equal((await browser.ask(alice, 'GET', '/proxy')).status, 200)
  const rotated = await gateway.admin('POST', `/v1/admin/operators/${alice.id}/rotate-cert`, {
    grace_hours: 0,
  })
  t.equal(rotated.status, 200, rotated.text)
  t.equal((await browser.ask(alice, 'GET', '/proxy')).status, 401, 'the old one is nobody’s')
  const renewed = { id: alice.id, cert: rotated.json.cert_chain_pem, key: rotated.json.private_key_pem }
  t.equal((await browser.ask(renewed, 'GET', '/proxy')).status, 303, 'the new one signs in anew')
  await browser.ask(renewed, 'POST', SIGN_IN, {})
  t.equal((await browser.ask(renewed, 'GET', '/proxy')).status, 200)
  t.equal((await gateway.admin('DELETE', `/v1/admin/operators/${alice.id}`)).status, 204)
  t.not((await browser.ask(renewed, 'GET', '/proxy')).status, 200)
})

await t.test(
  'nobody else signs in so: an agent, nobody, another site, nor without a proof where one is demanded',
  async (t) => {
    const gateway = await testGateway(t, {
      files: { '20-dpop.yaml': 'plugin: dpop\negress_dpop_mode: required\n' },
    })
    const alice = await operatorNamed(gateway, 'alice', ['admin.read'])
    const bot = await gateway.enroll('bot', ['llm.chat'])
    t.equal((await new Browser(gateway).ask(null, 'POST', SIGN_IN, {})).status, 401)
    t.equal(
      (await new Browser(gateway).ask(alice, 'POST', SIGN_IN, {})).status,
      401,
      'a browser signs no proofs',
    )
    const optional = await testGateway(t)
    const agent = await optional.enroll('bot', ['llm.chat'])
    const owner = await operatorNamed(optional, 'alice', ['admin.read'])
    t.equal((await new Browser(optional).ask(agent, 'POST', SIGN_IN, {})).status, 403)
    t.equal((await new Browser(gateway).ask(bot, 'POST', SIGN_IN, {})).status, 401)
    const crossed = await optional.call(owner, 'POST', SIGN_IN, {
      headers: { origin: 'https://evil.example' },
      body: '',
    })
    t.equal(crossed.status, 403)
    t.same(await optional.rows({ action: 'admin.sign_in' }), [])
  },
)

await t.test('H3 who signs out has ended the session, also one that opens nothing just now', async (t) => {
  const gateway = await testGateway(t)
  const alice = await operatorNamed(gateway, 'alice', ['admin.read'])
  const mode = async (text: string): Promise<void> => {
    await writeFile(join(gateway.pluginsDir, '20-dpop.yaml'), `plugin: dpop\negress_dpop_mode: ${text}\n`)
    t.ok(await gateway.reload())
  }
  const sessions = async () => (await gateway.admin('GET', '/v1/admin/sessions')).json.sessions.length
  const signedIn = async () => {
    const browser = new Browser(gateway)
    await browser.ask(alice, 'POST', SIGN_IN, {})
    const { text } = await browser.ask(alice, 'GET', '/proxy')
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(text) ?? []
    return { browser, csrf }
  }
  const [shown, unshown] = [await signedIn(), await signedIn()]
  t.equal(await sessions(), 2)
  const forged = await unshown.browser.ask(null, 'POST', '/proxy/sign-out', { csrf: shown.csrf })
  t.equal(forged.status, 403, 'not without its own token')
  t.equal(await sessions(), 2)
  const out = await unshown.browser.ask(null, 'POST', '/proxy/sign-out', { csrf: unshown.csrf })
  t.equal(out.status, 303, 'on a connection that has shown no certificate')
  t.equal(await sessions(), 1, 'it has ended, and not its cookie alone')
  await mode('required')
  t.equal((await shown.browser.ask(alice, 'GET', '/proxy')).status, 401, 'a browser makes no proofs')
  t.equal((await shown.browser.ask(alice, 'POST', '/proxy/sign-out', { csrf: shown.csrf })).status, 303)
  await mode('optional')
  t.equal(await sessions(), 0, 'which nothing brings back')
  t.match(await gateway.rows({ action: 'admin.signed_out' }), [
    { principal_id: alice.id, detail: { by: 'itself', via: 'certificate' } },
    { principal_id: alice.id, detail: { by: 'itself', via: 'certificate' } },
  ])
})

const OPERATORS = '/v1/admin/operators'

/** The file and the password that a page shows once. */
function p12Of({ text }: Answered): { readonly pfx: Buffer; readonly passphrase: string } {
  const [, file = ''] = /href="data:application\/x-pkcs12;base64,([^"]+)"/.exec(text) ?? []
  const [, passphrase = ''] = /shown only here: <code[^>]*>([^<]+)/.exec(text) ?? []
  return { pfx: Buffer.from(file, 'base64'), passphrase }
}

/** Asks who somebody is that has imported a file of PKCS#12. */
const whoIs = async (gateway: TestGateway, pkcs12: ReturnType<typeof p12Of>): Promise<Answered> => {
  const agent = new Agent({ ca: gateway.ca, ...pkcs12 })
  return ask(`${gateway.url}/v1/admin/session`, 'GET', { agent }).finally(() => agent.destroy())
}

/** Follows a link of an invitation, and takes the certificate. */
const accept = (gateway: TestGateway, path: string): Promise<Answered> => {
  const [page = '', code = ''] = path.split('?code=')
  return new Jar(gateway).send(page, { code })
}

await t.test(
  'an invitation gives one person, once, the certificate of an operator, in a file that browsers import',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = await operatorNamed(gateway, 'alice', ADMIN_CAPABILITIES)
    const made = await as(gateway, alice)('POST', OPERATORS, {
      operator_name: 'bob',
      capabilities: ['admin.read'],
    })
    const bob = made.json.principal_id
    const invited = await as(gateway, alice)('POST', `${OPERATORS}/${bob}/invitation`)
    t.equal(invited.status, 201, invited.text)
    const { path, expires_at: until } = invited.json
    const shown = await gateway.call(null, 'GET', path)
    t.equal(shown.status, 200, shown.text)
    t.match(shown.text, alice.id)
    t.match(shown.text, 'admin.read')
    t.equal((await gateway.call(null, 'GET', path)).status, 200, 'a program that looks at links uses none up')

    const both = await Promise.all([accept(gateway, path), accept(gateway, path)])
    const [taken, late] = both.toSorted((one, other) => one.status - other.status)
    t.strictSame([taken?.status, late?.status], [200, 404], 'of two at once, one has it')
    if (!taken || !late) return
    t.match(late.text, 'was used already')
    t.match((await gateway.call(null, 'GET', path)).text, 'was used already')
    t.equal((await accept(gateway, path)).status, 404)

    const p12 = p12Of(taken)
    t.match((await whoIs(gateway, p12)).json, { operator: bob, capabilities: ['admin.read'] })
    const info = execFileSync('openssl', ['pkcs12', '-noenc', '-passin', `pass:${p12.passphrase}`], {
      input: p12.pfx,
    }).toString()
    t.match(info, /BEGIN PRIVATE KEY/)
    t.equal(info.match(/BEGIN CERTIFICATE/g)?.length, 2, 'its own, and the one above it')
    t.throws(() =>
      execFileSync('openssl', ['pkcs12', '-passin', 'pass:x'], { input: p12.pfx, stdio: 'pipe' }),
    )

    t.match((await gateway.rows({ action: 'admin.operator_invited' }))[0], {
      principal_id: alice.id,
      detail: { subject: bob, until },
    })
    const rotated = await gateway.rows({ action: 'operator.cert_rotated', principal: bob })
    t.match(rotated[0], { detail: { via: 'invitation', invited_by: alice.id } })
  },
)

await t.test('an invitation is good as long as nothing has changed that it rests on', async (t) => {
  let passed = 0
  const gateway = await testGateway(t, { clock: () => Date.now() + passed })
  const machine = onTheMachine(gateway)
  const operator = (capabilities: readonly string[]): Promise<Identity> =>
    operatorNamed(gateway, `op-${randomUUID()}`, capabilities)
  const invite = async (ask: typeof machine, id: string): Promise<string> => {
    const { status, text, json } = await ask('POST', `${OPERATORS}/${id}/invitation`)
    if (status !== 201) throw new Error(`${status} ${text}`)
    return json.path
  }
  const [inviter, viewer] = [await operator(ADMIN_CAPABILITIES), await operator(['admin.read'])]
  const capabilities = { capabilities: ['admin.read'] }
  const after: Readonly<Record<string, (id: string, by: Identity) => Promise<unknown>>> = {
    'the inviter holds less': (_id, by) =>
      machine('PATCH', `${OPERATORS}/${by.id}/capabilities`, capabilities),
    'the inviter is deactivated': (_id, by) => machine('DELETE', `${OPERATORS}/${by.id}`),
    "the inviter's certificate was ended": (_id, by) =>
      machine('POST', `${OPERATORS}/${by.id}/rotate-cert`, { grace_hours: 0 }),
    'the operator holds more': (id) =>
      machine('PATCH', `${OPERATORS}/${id}/capabilities`, { capabilities: ADMIN_CAPABILITIES }),
    'the operator is deactivated': (id) => machine('DELETE', `${OPERATORS}/${id}`),
    'its hour is over': async () => {
      passed = 3_600_001
    },
  }
  for (const [what, change] of Object.entries(after)) {
    const [by, { id }] = [await operator(ADMIN_CAPABILITIES), await operator([])]
    const path = await invite(as(gateway, by), id)
    await change(id, by)
    t.equal((await gateway.call(null, 'GET', path)).status, 404, what)
    t.equal((await accept(gateway, path)).status, 404, what)
  }
  passed = 0

  const { id } = await operator([])
  const bySecret = await invite(gateway.admin, id)
  t.equal((await gateway.call(null, 'GET', bySecret)).status, 200)
  await machine('POST', '/v1/admin/secret/disable')
  t.equal((await accept(gateway, bySecret)).status, 404, 'the secret is disabled')
  await machine('POST', '/v1/admin/secret/enable')
  t.equal((await gateway.call(null, 'GET', bySecret)).status, 200)
  await gateway.admin('POST', '/v1/admin/secret/rotate', { new_secret: 'another-horse-battery' })
  t.equal((await accept(gateway, bySecret)).status, 404, 'the secret is another')

  const onTheSpot = await invite(machine, id)
  const forged = onTheSpot.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'))
  for (const path of [forged, '/proxy/invited?code=', '/proxy/invited?code=e30.x', '/proxy/invited'])
    t.equal((await accept(gateway, path)).status, 404, path)
  t.equal((await accept(gateway, onTheSpot)).status, 200, 'made on the machine itself')

  t.equal((await as(gateway, viewer)('POST', `${OPERATORS}/${id}/invitation`)).status, 403)
  await machine('DELETE', `${OPERATORS}/${viewer.id}`)
  t.equal((await as(gateway, inviter)('POST', `${OPERATORS}/${viewer.id}/invitation`)).status, 409)
  t.equal((await as(gateway, inviter)('POST', `${OPERATORS}/acme::operator::x/invitation`)).status, 404)
})

await t.test(
  'an invitation is made with an operator on its page; where two must agree, it is not',
  async (t) => {
    const gateway = await testGateway(t)
    const alice = await operatorNamed(gateway, 'alice', ADMIN_CAPABILITIES)
    const browser = new Browser(gateway)
    await browser.ask(alice, 'POST', SIGN_IN, {})
    const list = (await browser.ask(alice, 'GET', '/proxy/operators')).text
    const [, csrf = ''] = /name="csrf" value="([^"]+)"/.exec(list) ?? []
    t.match(list, 'Enroll, and make an invitation')
    const fields = { csrf, operator_name: 'carol', capabilities: 'admin.read' }
    const shown = await browser.ask(alice, 'POST', '/proxy/operators', { ...fields, invite: 'yes' })
    const [, path = ''] = /https?:[^<"]*(\/proxy\/invited\?code=[\w.-]+)/.exec(shown.text) ?? []
    const taken = await accept(gateway, path)
    t.match((await whoIs(gateway, p12Of(taken))).json, { operator: 'acme::operator::carol' })
    const page = (await browser.ask(alice, 'GET', '/proxy/operators/acme::operator::carol')).text
    t.match(page, 'Make an invitation')
    const again = await browser.ask(alice, 'POST', '/proxy/operators/acme::operator::carol/invitation', {
      csrf,
    })
    t.match(again.text, '/proxy/invited?code=')

    const minted = await browser.ask(alice, 'POST', '/proxy/agents', {
      csrf,
      agent_name: 'bot',
      capabilities: '',
    })
    t.match((await whoIs(gateway, p12Of(minted))).json.reason, /./, 'an agent administers nothing')

    await operatorNamed(gateway, 'dave', ADMIN_CAPABILITIES)
    const files = gateway.pluginsDir
    await writeFile(join(files, '70-operators.yaml'), 'plugin: operators\ntwo_person: [operators]\n')
    t.ok(await gateway.reload())
    const refused = await as(gateway, alice)('POST', `${OPERATORS}/acme::operator::carol/invitation`)
    t.match(refused, { status: 409, json: { reason: 'two_people_required' } })
  },
)
