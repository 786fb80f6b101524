import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ADMIN_CAPABILITIES } from '../../../../plugins/operators/capabilities.ts'
import { type Answered, CHAT, testGateway } from '../../../support/gateway.ts'
import { as, onTheMachine, operatorOnTheMachine, ownerOnTheMachine } from '../../../support/operators.ts'

const AGENTS = '/v1/admin/agents'
const BINDINGS = '/v1/admin/mcp-resources/bindings'
const REHEARSALS = '/v1/admin/rehearsals'
const OPERATORS = '/v1/admin/operators'
const EXPECTED = 'acme::bot may use model *'

interface Rules {
  readonly rehearsal?: 'always' | 'when_refusing'
  readonly two?: string
}

/** An agent that has called, which is expected to go on, under the rules of a file; alice and bob hold all there is. */
async function stageOf(t: Test, { rehearsal, two = '' }: Rules) {
  const required = rehearsal === undefined ? '' : `require_rehearsal: ${rehearsal}\n`
  const gateway = await testGateway(t, {
    files: { '70-operators.yaml': `plugin: operators\ntwo_person: [${two}]\n${required}` },
  })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  t.equal((await gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  const machine = onTheMachine(gateway)
  const expect = async (...sentences: readonly string[]) => {
    const yaml = `plugin: expect\nexpect: ${JSON.stringify(sentences)}\n`
    await writeFile(join(gateway.pluginsDir, '90-expect.yaml'), yaml)
    t.equal(await gateway.reload(), true)
  }
  const alice = as(gateway, await ownerOnTheMachine(gateway, 'alice'))
  const bob = as(gateway, await ownerOnTheMachine(gateway, 'bob'))
  return { gateway, bot, machine, expect, alice, bob }
}

const reasonOf = ({ status, json }: Pick<Answered, 'status' | 'json'>): string =>
  [status, json?.reason].filter((part) => part !== undefined).join(' ')

/** Asks for a change again and again, each time with one more of its faults mended. */
async function ladder(
  t: Test,
  steps: readonly (readonly [expected: string, asked: () => Promise<Answered>, message?: RegExp])[],
): Promise<void> {
  for (const [at, [expected, asked, message = /^/]] of steps.entries()) {
    const answer = await asked()
    t.equal(reasonOf(answer), expected, `step ${at}: ${answer.text}`)
    t.match(answer.json?.message ?? '', message, `step ${at}`)
  }
}

await t.test(
  'of several refusals of a PATCH of capabilities its caller sees the first in this order',
  async (t) => {
    const { gateway, bot, alice, expect } = await stageOf(t, { rehearsal: 'always', two: 'grant' })
    await expect(EXPECTED)
    const reader = as(gateway, await operatorOnTheMachine(gateway, 'reader', ['admin.read']))
    const nobody = `${AGENTS}/acme::nobody/capabilities`
    const path = `${AGENTS}/${bot.id}/capabilities`
    const rehearsed = async (capabilities: readonly string[], principal = bot.id): Promise<string> =>
      (await alice('POST', REHEARSALS, { changes: [{ principal, capabilities }] })).json.id
    const other = await rehearsed(['x'])
    const own = await rehearsed([])
    const [wrong, none, stale] = [{ capabilities: ['X'] }, { capabilities: [] }, { 'if-match': '"7"' }]
    const forced = '?force=true&reason=the+key+leaked'
    const unknown = { ...stale, 'if-rehearsed': 'reh_0' }
    const named = { ...stale, 'if-rehearsed': own }
    await ladder(t, [
      ['403 capability_missing', () => reader('PATCH', `${nobody}?force=true`, wrong, unknown)],
      ['422 body_unprocessable', () => alice('PATCH', `${nobody}?force=true`, wrong, unknown), /reason/],
      ['422 body_unprocessable', () => alice('PATCH', nobody, wrong, unknown), /capabilities\[0\]/],
      ['404 not_found', () => alice('PATCH', nobody, none, unknown), /no agent/],
      ['404 not_found', () => alice('PATCH', path, none, unknown), /no rehearsal/],
      [
        '412 precondition_failed',
        () => alice('PATCH', path, none, { ...stale, 'if-rehearsed': other }),
        /about another change/,
      ],
      ['428 rehearsal_required', () => alice('PATCH', path, none, stale)],
      ['409 expectation_broken', () => alice('PATCH', path, none, named)],
      ['412 precondition_failed', () => alice('PATCH', path + forced, none, named)],
      ['202', () => alice('PATCH', path + forced, none, { 'if-rehearsed': own })],
    ])
    t.same(await gateway.rows({ action: 'agent.capabilities_patched', status: 'success' }), [])
    const denied = await gateway.rows({ action: 'agent.capabilities_patched', status: 'denied' })
    t.match(denied, [{ principal_id: 'acme::operator::reader', detail: { refused_by: 'capability' } }])
  },
)

await t.test('a dry run is refused as the change itself would be, and by no condition of it', async (t) => {
  const { bot, alice, expect } = await stageOf(t, { rehearsal: 'always', two: 'grant, operators' })
  await expect(EXPECTED)
  const path = `${AGENTS}/${bot.id}/capabilities?dry_run=true`
  const [none, stale] = [{ capabilities: [] }, { 'if-match': '"7"', 'if-rehearsed': 'reh_0' }]
  const alices = `${OPERATORS}/acme::operator::alice/capabilities?dry_run=true`
  await ladder(t, [
    ['422 body_unprocessable', () => alice('PATCH', `${AGENTS}/nobody/capabilities?dry_run=true`, {}, stale)],
    ['404 not_found', () => alice('PATCH', `${AGENTS}/nobody/capabilities?dry_run=true`, none, stale)],
    ['412 precondition_failed', () => alice('PATCH', path, none, stale)],
    ['200', () => alice('PATCH', path, none, { 'if-rehearsed': 'reh_0' })],
    ['412 precondition_failed', () => alice('PATCH', alices, none, stale)],
    ['200', () => alice('PATCH', alices, none)],
  ])
})

await t.test('a rehearsal that was not asked for refuses before what is expected does', async (t) => {
  const { bot, alice, expect } = await stageOf(t, { rehearsal: 'when_refusing' })
  await expect(EXPECTED)
  const path = `${AGENTS}/${bot.id}/capabilities`
  const { json } = await alice('POST', REHEARSALS, {
    changes: [{ principal: bot.id, capabilities: [] }],
  })
  const stale = { 'if-match': '"7"' }
  const named = { 'if-rehearsed': json.id }
  const none = { capabilities: [] }
  await ladder(t, [
    ['428 rehearsal_required', () => alice('PATCH', path, none, stale), /would refuse 1\./],
    ['409 expectation_broken', () => alice('PATCH', path, none, { ...stale, ...named })],
    [
      '412 precondition_failed',
      () => alice('PATCH', `${path}?force=true&reason=x`, none, { ...stale, ...named }),
    ],
    ['200', () => alice('PATCH', `${path}?force=true&reason=x`, none, named)],
  ])
})

await t.test(
  'what is about nobody is refused by the first question that asks whom it is about',
  async (t) => {
    const { alice, expect } = await stageOf(t, { rehearsal: 'always' })
    await expect(EXPECTED)
    const body = { agent_id: 'acme::nobody', resource_id: 'mcpr_0' }
    const asked = () => alice('POST', BINDINGS, body)
    await ladder(t, [['422 body_unprocessable', asked, /^changes\[0\]\.principal/]])
    const other = await stageOf(t, { two: 'grant' })
    await other.expect(EXPECTED)
    const propose = () => other.alice('POST', BINDINGS, body)
    await ladder(t, [['202', propose]])
    const { json } = await other.bob('GET', '/v1/admin/proposals?status=open')
    const { id, rehearsal } = json.proposals[0]
    t.equal(rehearsal, null)
    const confirm = () => other.bob('POST', `/v1/admin/proposals/${id}/confirm`)
    await ladder(t, [['422 body_unprocessable', confirm, /^agent_id/]])
  },
)

await t.test('what cannot wait says so after what is expected, and before its own conflict', async (t) => {
  const { alice, machine, expect } = await stageOf(t, { two: 'grant' })
  await expect('acme::new may not use model *')
  const body = { agent_name: 'new', capabilities: ['llm.chat'] }
  const made = { agent_name: 'new', capabilities: [] }
  t.equal((await machine('POST', AGENTS, made)).status, 201)
  await ladder(t, [
    ['409 expectation_broken', () => alice('POST', AGENTS, body)],
    ['409 two_people_required', () => alice('POST', `${AGENTS}?force=true&reason=x`, body)],
    ['409 conflict', () => alice('POST', AGENTS, made)],
  ])
})

await t.test(
  "a change of an operator's own: its state, then what it gives itself, then who is left",
  async (t) => {
    const { gateway, machine } = await stageOf(t, {})
    const carol = as(
      gateway,
      await operatorOnTheMachine(gateway, 'carol', ['admin.read', 'admin.operators', 'admin.grant']),
    )
    for (const name of ['alice', 'bob']) await machine('DELETE', `${OPERATORS}/acme::operator::${name}`)
    t.equal((await machine('POST', '/v1/admin/secret/disable')).status, 204)
    const path = `${OPERATORS}/acme::operator::carol/capabilities`
    const [raised, lowered] = [{ capabilities: ['admin.audit'] }, { capabilities: ['admin.read'] }]
    await ladder(t, [
      [
        '404 not_found',
        () => carol('PATCH', `${OPERATORS}/nobody/capabilities`, raised, { 'if-match': '"7"' }),
      ],
      ['412 precondition_failed', () => carol('PATCH', path, raised, { 'if-match': '"7"' })],
      ['403 own_authority', () => carol('PATCH', path, raised)],
      ['409 last_owner', () => carol('PATCH', path, lowered)],
    ])
    const denied = await gateway.rows({ action: 'operator.capabilities_patched', status: 'denied' })
    t.match(denied, [{ detail: { reason: 'own_authority', refused_by: 'operation' } }])
  },
)

await t.test(
  'of a confirmation: who confirms, what it takes, what has changed since, and what is expected',
  async (t) => {
    const { gateway, bot, alice, bob, machine, expect } = await stageOf(t, { two: 'grant' })
    const carol = as(gateway, await operatorOnTheMachine(gateway, 'carol', ['admin.read']))
    const path = `${AGENTS}/${bot.id}/capabilities`
    const propose = async (query = ''): Promise<string> =>
      (await alice('PATCH', path + query, { capabilities: ['x'] })).json.proposal_id
    const confirm = (who: typeof alice, id: string) => who('POST', `/v1/admin/proposals/${id}/confirm`)
    const [one, other] = [await propose(), await propose()]
    await expect(EXPECTED)
    t.equal((await machine('PATCH', path, { capabilities: ['llm.chat', 'y'] })).status, 200)
    const fresh = await propose('?force=true&reason=the+key+leaked')
    await ladder(t, [
      ['403 own_proposal', () => confirm(alice, one)],
      ['403 capability_missing', () => confirm(carol, one)],
      ['412 precondition_failed', () => confirm(bob, one), /Propose the change again/],
      ['409 conflict', () => confirm(bob, one)],
    ])
    await machine('PATCH', `${OPERATORS}/acme::operator::alice/capabilities`, { capabilities: [] })
    await ladder(t, [['412 precondition_failed', () => confirm(bob, other)]])
    await machine('PATCH', `${OPERATORS}/acme::operator::alice/capabilities`, {
      capabilities: ADMIN_CAPABILITIES,
    })
    await ladder(t, [['200', () => confirm(bob, fresh)]])
    const broken = [EXPECTED]
    const [made] = await gateway.rows({ action: 'agent.capabilities_patched' })
    t.match(made?.detail, {
      proposal: fresh,
      confirmed_by: 'acme::operator::bob',
      rehearsal: /^reh_/,
      forced: { reason: 'the key leaked', broken },
      via: 'certificate',
    })
    const [confirmed] = await gateway.rows({ action: 'proposal.confirmed', status: 'success' })
    t.same(confirmed?.detail, {
      proposal: fresh,
      rehearsal: made?.detail.rehearsal,
      change: 'agent.capabilities_patched',
      capabilities: ['admin.grant'],
      proposed_by: 'acme::operator::alice',
      forced: { reason: 'the key leaked', broken },
      via: 'certificate',
    })
  },
)

await t.test('a proposal that breaks what is expected since stays open', async (t) => {
  const { bot, alice, bob, expect } = await stageOf(t, { two: 'grant' })
  const path = `${AGENTS}/${bot.id}/capabilities`
  const id: string = (await alice('PATCH', path, { capabilities: ['x'] })).json.proposal_id
  await expect(EXPECTED)
  const confirm = () => bob('POST', `/v1/admin/proposals/${id}/confirm`)
  await ladder(t, [['409 expectation_broken', confirm]])
  t.equal((await bob('GET', `/v1/admin/proposals/${id}`)).json.status, 'open')
  await expect()
  await ladder(t, [['200', confirm]])
})
