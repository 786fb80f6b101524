import t from 'tap'
import { buttonsIn, press } from '../../support/dashboard/pressing.ts'
import { testGateway } from '../../support/gateway.ts'
import { signedInBySecret } from '../../support/oidc/jar.ts'

const CHAT = { model: 'gpt-4o-mini', messages: [{ role: 'user', content: 'hello' }] }
const PAGE = '/proxy/agents/acme::bot'

await t.test(
  'a set is tried alongside the real one, shows what it would have changed, and becomes the real one by a second press',
  async (t) => {
    const gateway = await testGateway(t)
    const bot = await gateway.enroll('bot', ['llm.chat', 'reports.read'])
    const jar = await signedInBySecret(gateway)
    const held = async () => (await gateway.admin('GET', '/v1/admin/agents/acme::bot')).json.capabilities
    t.notMatch((await jar.ask('GET', PAGE)).text, 'id="candidate"')
    const tried = await press(jar, (await jar.ask('GET', PAGE)).text, 'Try this set alongside the real one', {
      capabilities: 'reports.read',
    })
    t.equal(tried.headers.location, '/proxy/agents/acme%3A%3Abot?notice=tried', tried.text)
    t.same(await held(), ['llm.chat', 'reports.read'], 'it decides nothing')
    for (let calls = 0; calls < 3; calls += 1)
      t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)

    const page = (await jar.ask('GET', String(tried.headers.location))).text
    t.match(page, 'data-load="/proxy/agents/acme%3A%3Abot/candidate"')
    t.match(page, /Tried alongside the real set<\/h2><p><span class="token">reports\.read/)
    const watched = (await jar.ask('GET', `${PAGE}/candidate`)).text
    t.match(watched, 'It has judged 3 calls.')
    t.match(watched, '3 calls would have been refused')
    const shown = await press(jar, watched, 'Promote: 3 calls since then would have been refused')
    t.equal(shown.status, 200)
    t.match(shown.text, 'Promote: 3 calls of the last 30 days would be refused')
    t.same(await held(), ['llm.chat', 'reports.read'], 'nothing changed')
    const done = await press(jar, shown.text, /^Promote: 3 calls/)
    t.equal(done.headers.location, '/proxy/agents/acme%3A%3Abot?notice=updated', done.text)
    t.same(await held(), ['reports.read'])
    const rows = await gateway.rows({ action: 'agent.capabilities_patched' })
    t.equal(rows.length, 1)
    t.match(rows[0]?.detail, { candidate: { decisions: 3, would_refuse: 3 } })
    t.equal((await gateway.rows({ action: 'agent.candidate_set' })).length, 1)
    t.match((await jar.ask('GET', `${PAGE}/candidate`)).text, 'No other set is tried')
  },
)

await t.test(
  'a set that somebody has replaced meanwhile is neither promoted nor removed, and a bad token stays typed',
  async (t) => {
    const gateway = await testGateway(t)
    await gateway.enroll('bot', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const page = async () => (await jar.ask('GET', PAGE)).text
    const bad = await press(jar, await page(), /^Try/, { capabilities: 'Bad-Token' })
    t.equal(bad.status, 422)
    t.match(bad.text, '<code>Bad-Token</code>')
    t.match(bad.text, '>Bad-Token</textarea>')
    const stale = await page()
    t.equal((await press(jar, stale, /^Try/, { capabilities: 'llm.chat, a.b' })).status, 303)
    const late = await press(jar, stale, /^Try/, { capabilities: 'c.d' })
    t.equal(late.status, 412)
    t.match(late.text, 'Somebody else has changed it in the meantime')
    const seen = (await jar.ask('GET', `${PAGE}/candidate`)).text
    t.equal((await press(jar, await page(), /^Try/, { capabilities: 'c.d' })).status, 303)
    t.equal((await press(jar, seen, 'Promote')).status, 412)
    t.equal((await press(jar, seen, 'Remove')).status, 412)
    t.same(await gateway.rows({ action: 'agent.capabilities_patched' }), [])
    const now = (await jar.ask('GET', `${PAGE}/candidate`)).text
    t.equal((await press(jar, now, 'Remove')).headers.location, '/proxy/agents/acme%3A%3Abot?notice=untried')
    t.equal((await gateway.rows({ action: 'agent.candidate_removed' })).length, 1)
    t.equal((await jar.ask('GET', '/proxy/agents/acme::nobody/candidate')).status, 404)
  },
)

await t.test('an operator has no such form: its calls are of administration', async (t) => {
  const gateway = await testGateway(t)
  await gateway.admin('POST', '/v1/admin/operators', { operator_name: 'ada', capabilities: ['admin.read'] })
  const jar = await signedInBySecret(gateway)
  const { text } = await jar.ask('GET', '/proxy/operators/acme::operator::ada')
  t.same(
    buttonsIn(text).filter(({ label }) => label.startsWith('Try')),
    [],
  )
  t.notMatch(text, '/erase')
})

await t.test(
  'all that a search finds are labelled, given a set and changed by two presses, or none of them',
  async (t) => {
    const gateway = await testGateway(t)
    const { admin } = gateway
    const bot = await gateway.enroll('bot', ['llm.chat'])
    await gateway.enroll('helper', ['llm.chat'])
    const jar = await signedInBySecret(gateway)
    const page = async (path: string) => (await jar.ask('GET', path)).text
    const held = async () => (await admin('GET', '/v1/admin/agents/acme::bot')).json.capabilities
    for (const name of ['bot', 'helper']) {
      const path = `/proxy/agents/acme::${name}`
      const done = await press(jar, await page(path), 'Label', { labels: ' team=red, env=prod ' })
      t.equal(done.status, 303, done.text)
      t.match(await page(path), 'value="team=red, env=prod"')
    }
    const bad = await press(jar, await page(PAGE), 'Label', { labels: 'team' })
    t.equal(bad.status, 422)
    t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)

    const SETS = '/proxy/capabilities/sets'
    t.match(await page('/proxy/capabilities'), `href="${SETS}"`)
    const named = { name: 'reader', capabilities: 'files.read' }
    t.equal((await press(jar, await page(SETS), 'Save the set', named)).status, 303)
    t.match(
      await page(SETS),
      '<span class="token">team=red</span></td><td><a href="/proxy/agents?q=label%3Ateam%3Dred">2 agents',
    )

    const LIST = '/proxy/agents?q=label%3Ateam%3Dred'
    t.notMatch(await page('/proxy/agents'), 'Show what would change', 'only what was looked for')
    const give = { how: 'set', what: 'reader' }
    const shown = await press(jar, await page(LIST), 'Show what would change', give)
    t.equal(shown.status, 200, shown.text)
    t.match(shown.text, 'finds 2 agents; 2 agents would hold something else')
    t.match(shown.text, '1 call would have been refused')
    t.same(await held(), ['llm.chat'], 'nothing changed')
    t.equal(
      (await admin('PUT', '/v1/admin/agents/acme::helper/labels', { labels: { team: 'red' } })).status,
      200,
    )
    const late = await press(jar, shown.text, /^Change 2 agents/)
    t.equal(late.status, 412)
    t.match(late.text, 'others have changed acme::helper')
    t.same(await held(), ['llm.chat'], 'nor by halves')
    const done = await press(jar, late.text, 'Change 2 agents: 1 call of the last 30 days would be refused')
    t.equal(done.headers.location, '/proxy/agents?q=label%3Ateam%3Dred&notice=updated', done.text)
    t.same(await held(), ['files.read'])
    t.match(await page(PAGE), `<a href="${SETS}">reader</a>`)

    await admin('PATCH', '/v1/admin/agents/acme::bot/capabilities', { capabilities: ['x'] })
    t.match(await page(SETS), 'href="/proxy/agents?q=set%3Areader%20is%3Adrifted">1 agent')
    t.equal((await page('/proxy/agents')).match(/>drifted</g)?.length, 1)
    const DRIFTED = '/proxy/agents?q=set%3Areader+is%3Adrifted'
    const again = await press(jar, await page(DRIFTED), 'Show what would change', give)
    t.equal((await press(jar, again.text, /^Change 1 agent/)).status, 303)
    t.same(await held(), ['files.read'], 'given again')
    t.equal(
      (await press(jar, await page(LIST), 'Show what would change', { how: 'add', what: 'B' })).status,
      422,
    )
    t.equal((await press(jar, await page(SETS), 'Delete')).status, 303)
    t.match(await page(SETS), 'There are no named sets yet')
  },
)
