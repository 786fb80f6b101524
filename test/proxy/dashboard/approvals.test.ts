import t from 'tap'
import { renderArguments } from '../../../proxy/operators/pages/call-arguments.ts'
import { approvalStage, askedIn } from '../../support/approvals/stage.ts'
import { press } from '../../support/dashboard/pressing.ts'
import { signedInAs } from '../../support/dashboard/signed-in.ts'
import { operatorNamed } from '../../support/operators.ts'

t.setTimeout(120_000)

t.test('whatever hides in arguments is written out, and nothing is cut', (t) => {
  const page = (value: unknown): string => renderArguments(JSON.stringify(value)).text
  const spaces = page({ a: `x${' '.repeat(61_440)}rm -rf /` })
  t.match(spaces, '<mark>61440 spaces</mark>rm -rf /')
  t.match(spaces, 'look closely')
  const bidi = page({ a: 'ab\u202ecd\u200be' })
  t.match(bidi, '\\u{202e}')
  t.match(bidi, '\\u{200b}')
  t.match(bidi, 'U+202E')
  t.match(page({ a: 'x\u00a0y\u3000z' }), '<mark>\\u{a0}</mark>')
  t.match(page({ a: '<script>' }), '&lt;script&gt;')
  t.notMatch(page({ a: 'plain   text' }), 'look closely')
  t.ok(page({ a: 'y'.repeat(60_000) }).includes('y'.repeat(60_000)))
  t.end()
})

await t.test(
  'an operator reads a call on its page, and decides there; Attention lists what waits',
  async (t) => {
    const { stage, bot } = await approvalStage(t)
    const pay = (n: number) => stage.callTool(bot, 'files.pay', { n, note: 'for <b>rent</b>' })
    const jar = await signedInAs(stage, await operatorNamed(stage, 'eve', ['admin.read', 'admin.approve']))
    const read = async (path: string): Promise<string> => (await jar.ask('GET', path)).text
    const [one, other] = [askedIn(await pay(1)), askedIn(await pay(2))]
    const attention = await read('/proxy')
    t.match(attention, `/proxy/approvals/${one}`)
    t.match(attention, 'A call of files.pay waits for an approval')
    const page = await read(`/proxy/approvals/${one}`)
    t.match(page, 'acme::bot')
    t.match(page, '&lt;b&gt;rent&lt;/b&gt;')
    t.match(page, 'Does pay.', 'what the tool says of itself')
    t.equal((await press(jar, page, 'Let exactly this call pass, once')).status, 303)
    t.match(await read(`/proxy/approvals/${one}?notice=call_approved`), 'passes once')
    t.ok((await pay(1)).json.result)
    t.match(await read(`/proxy/approvals/${one}`), 'used')
    const declined = await press(jar, await read(`/proxy/approvals/${other}`), 'Decline it', {
      reason: 'No.',
    })
    t.equal(declined.status, 303)
    t.match((await pay(2)).json.error.message, 'said: No.')
    t.match(await read('/proxy/approvals'), 'declined')
    t.notMatch(await read('/proxy'), one)
    const viewer = await signedInAs(stage, await operatorNamed(stage, 'vic', ['admin.read']))
    const third = askedIn(await pay(3))
    t.match((await viewer.ask('GET', `/proxy/approvals/${third}`)).text, 'Deciding needs')
  },
)

await t.test('the rule of a server is set by its form', async (t) => {
  const { stage, bot, files } = await approvalStage(t, { tool_approvals: {} })
  const owner = await operatorNamed(stage, 'own', ['admin.read', 'admin.tools', 'admin.grant'])
  const jar = await signedInAs(stage, owner)
  const path = `/proxy/tools/${files.resource_id}`
  const page = (await jar.ask('GET', path)).text
  const typed = { approval: 'nobody', tool_approvals: 'pay=operator\n' }
  await stage.callTool(bot, 'files.pay', {})
  const asked = await press(jar, page, 'Set the rule', typed)
  t.match(asked.text, 'Somebody would be asked to approve 1 call a day, 1 at the most')
  const set = await press(jar, asked.text, /^Set the rule/, typed)
  t.equal(set.status, 303, set.text.slice(0, 2_000))
  t.equal((await stage.resource(files)).tool_approvals.pay, 'operator')
  t.equal((await stage.callTool(bot, 'files.pay', {})).json.error.code, -31007)
  t.match((await jar.ask('GET', path)).text, 'pay=operator')
  const wrong = await press(jar, (await jar.ask('GET', path)).text, 'Set the rule', {
    ...typed,
    tool_approvals: 'pay',
  })
  t.equal(wrong.status, 422)
})
