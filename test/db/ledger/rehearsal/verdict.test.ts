import t from 'tap'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import { bindingName } from '../../../../db/ledger/rehearsal/changes.ts'
import { rehearser } from '../../../../db/ledger/rehearsal/rehearse.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import {
  BOT,
  binding,
  chainOf,
  changed,
  decided,
  decidedTool,
  ended,
  JKT,
  loaded,
  MODE,
  note,
  resource,
  started,
} from '../../../support/db/history.ts'
import { ALL, changes, rehearsed, type Told } from '../../../support/db/rehearsal.ts'

const START = [started, loaded()]
const LLM = [...START, changed('agent.created', 1)]
const mcp = (capabilities: readonly string[], more: JsonObject = {}) => [
  ...START,
  changed('agent.created', 1, { capabilities }),
  resource('created', 1, { pinned: [['read', 'd1']], ...more }),
  binding('created'),
]
const refusal = (reason: string, more: JsonObject = {}) =>
  ({ status: 'denied', more: { reason, ...more } }) as const
const LACKS = { ...refusal('capability_missing', { required_capability: 'files.use' }) }

/** What becomes of the last call of a history: the pile, and why. */
function fate(entries: readonly LedgerEntry[], told: Told): string {
  const { unchanged, newlyRefused, newlyAllowed, undecidable, disagreements } = rehearsed(entries, told)
  const names = [
    ...newlyRefused.groups.map(({ reason, capability }) => `refused: ${reason} ${capability ?? ''}`.trim()),
    ...newlyAllowed.groups.map(({ reason, capability }) => `allowed: ${reason} ${capability ?? ''}`.trim()),
    ...undecidable.map(({ why }) => `undecidable: ${why}`),
    ...(unchanged > 0 ? ['unchanged'] : []),
    ...(disagreements > 0 ? ['disagrees'] : []),
  ]
  return names.join(', ')
}

t.test(
  'docs/rehearsal.md#rule: a capability that goes takes with it the calls that demanded it',
  async (t) => {
    const llm = [...LLM, decided(1)]
    t.equal(fate(llm, {}), 'unchanged')
    t.equal(fate(llm, { capabilities: [] }), 'refused: capability_missing llm.chat')
    t.equal(fate(llm, { capabilities: ['llm.chat', 'x'] }), 'unchanged')
    t.equal(fate(llm, { capabilities: [], subject: 'acme::other' }), 'unchanged', 'of another principal')
    t.equal(fate(llm, { isActive: false }), 'refused: principal_deactivated')
    const tool = [...mcp(['files.use']), decidedTool(1)]
    t.equal(fate(tool, { capabilities: ['x'] }), 'refused: capability_missing files.use')
    t.equal(fate(tool, { capabilities: [] }), 'refused: capability_missing files.use')
  },
)

t.test('docs/rehearsal.md#rule: each row is judged with the state of its own time', async (t) => {
  const before = [...LLM, decided(1), changed('agent.capabilities_patched', 2, { capabilities: [] })]
  const lacks = refusal('capability_missing', { required_capability: 'llm.chat' })
  const later = [...before, decided(2, { ...lacks, authority: { revision: 2 } })]
  t.equal(fate(later, {}), 'unchanged')
  t.match(rehearsed(later, { capabilities: ['llm.chat'] }), {
    unchanged: 1,
    newlyAllowed: { decisions: 1, groups: [{ principal_id: BOT, samples: ['req_2'] }] },
  })
  t.match(rehearsed(later, { capabilities: ['x'] }), { unchanged: 1, newlyRefused: { decisions: 1 } })
})

t.test('docs/rehearsal.md#rule: what a resource demands, and whether it is there', async (t) => {
  const tool = [...mcp(['files.use']), decidedTool(1)]
  t.equal(fate(tool, { resource: { requiredCapability: 'x' } }), 'refused: capability_missing x')
  t.equal(fate(tool, { resource: { toolCapabilities: { read: 'y' } } }), 'refused: capability_missing y')
  t.equal(fate(tool, { resource: { toolCapabilities: { write: 'y' } } }), 'unchanged')
  t.equal(fate(tool, { resource: { requiredCapability: null } }), 'unchanged')
  t.equal(fate(tool, { resource: { enabled: false } }), 'refused: mcp_tool_unknown')
  t.equal(fate(tool, { bound: false }), 'refused: mcp_not_bound')
  t.equal(fate(tool, { bound: true }), 'unchanged')
  t.equal(fate(tool, { settings: { enforceToolsCall: true } }), 'refused: capability_missing mcp.tools.call')
})

t.test('docs/rehearsal.md#undecidable: a call whose later questions were never asked', async (t) => {
  const lacks = [...mcp(['x']), decidedTool(1, LACKS)]
  const arguments_ = 'undecidable: its arguments were never looked at'
  t.equal(fate(lacks, { capabilities: ['files.use'] }), arguments_)
  t.equal(fate(lacks, { resource: { requiredCapability: 'x' } }), arguments_)
  t.equal(fate(lacks, { capabilities: ['y'] }), 'unchanged', 'it is refused as before')
  const unbound = mcp(['files.use']).slice(0, -1)
  const notBound = decided(1, {
    ...{ action: 'mcp_tools_call', tool: 'files.read', model: null, status: 'denied' },
    more: { path: '/v1/mcp', reason: 'mcp_not_bound' },
    authority: { demanded: ['files.use'], resource: { id: 'mcpr_1', revision: 1 } },
  })
  t.equal(fate([...unbound, notBound], { bound: true }), arguments_)
  t.equal(fate([...unbound, notBound], { capabilities: [] }), 'unchanged')

  const watched = [started, loaded({ checks: [{ name: 'policy', digest: 'p', shadow: false }] })]
  const empty = changed('agent.created', 1, { capabilities: [] })
  const denied = decided(1, refusal('capability_missing', { required_capability: 'llm.chat' }))
  t.equal(
    fate([...watched, empty, denied], { capabilities: ['llm.chat'] }),
    'undecidable: the check policy was never asked',
  )
  t.equal(
    fate([...START, empty, denied], { capabilities: ['llm.chat'] }),
    'allowed: capability_missing llm.chat',
  )
})

t.test(
  'docs/stops.md: a stop would have refused the allowed calls of its scope, and no others',
  async (t) => {
    const llm = [...LLM, decided(1)]
    const tool = [...mcp(['files.use']), decidedTool(1)]
    const stopped = 'refused: stopped'
    for (const [scope, ofModel, ofTool] of [
      ['all', stopped, stopped],
      ['llm', stopped, 'unchanged'],
      ['mcp', 'unchanged', stopped],
      [{ principal: BOT }, stopped, stopped],
      [{ principal: 'acme::other' }, 'unchanged', 'unchanged'],
      [{ resource: 'mcpr_1' }, 'unchanged', stopped],
      [{ kind: 'agents' }, stopped, stopped],
      [{ kind: 'users' }, 'unchanged', 'unchanged'],
    ] as const) {
      const told = { stops: [scope] }
      t.same([fate(llm, told), fate(tool, told)], [ofModel, ofTool], JSON.stringify(scope))
    }
    t.equal(fate(llm, { stops: ['llm'], capabilities: [] }), 'refused: capability_missing llm.chat')
    const was = note('stop.begun', { stop: 'stp_1', scope: 'llm', reason: 'a key has leaked' })
    const refused = decided(1, refusal('stopped', { stop: 'stp_1' }))
    t.equal(fate([...LLM, was, refused], { capabilities: ['llm.chat', 'x'] }), 'unchanged', 'it was stopped')
  },
)

t.test('docs/rehearsal.md#rule: what else had refused a call still does', async (t) => {
  const other = [...LLM, decided(1, refusal('model_unknown'))]
  t.equal(fate(other, { capabilities: [] }), 'unchanged')
  t.equal(fate(other, { capabilities: ['llm.chat', 'x'] }), 'unchanged')
  const checked = [started, loaded({ checks: [{ name: 'policy', digest: 'p', shadow: false }] })]
  const said = [{ name: 'policy', digest: 'p', verdict: 'refuse' }]
  const refusedBy = decided(1, {
    ...refusal('policy_denied', { refused_by: 'policy' }),
    authority: { checks: said },
  })
  t.equal(
    fate([...checked, changed('agent.created', 1), refusedBy], { capabilities: ['llm.chat', 'x'] }),
    'unchanged',
  )
})

t.test(
  'docs/rehearsal.md#modes: proofs that come to be demanded, and those that no row knows of',
  async (t) => {
    const required = { settings: { mode: 'required' } } as const
    t.equal(fate([...LLM, decided(1)], required), 'refused: proof_required')
    const registered = { dpop_jkts: [[JKT, null]] }
    const known = [...START, changed('agent.created', 1, registered)]
    t.equal(fate([...known, decided(1, { dpop_jkt: JKT })], required), 'unchanged')
    t.equal(fate([...known, decided(1)], { settings: { noDowngrade: true } }), 'refused: proof_required')
    t.equal(fate([...LLM, decided(1)], { settings: { noDowngrade: true } }), 'unchanged')
    const off = { ...MODE, egress_dpop_mode: 'off' }
    const blind = [
      started,
      loaded(off),
      changed('agent.created', 1),
      decided(1, { authority: { mode: off } }),
    ]
    t.match(fate(blind, required), /^undecidable: proofs were not looked at/)
    t.equal(
      fate(blind, { ...required, capabilities: [] }),
      'refused: capability_missing llm.chat',
      'in any case',
    )
    const strict = { ...MODE, egress_dpop_mode: 'required' }
    const asked = [
      started,
      loaded(strict),
      changed('agent.created', 1),
      decided(1, { ...refusal('proof_required'), authority: { mode: strict } }),
    ]
    t.match(fate(asked, { settings: { mode: 'optional' } }), /^undecidable: .* a token narrowed it$/)
    t.equal(fate(asked, { settings: { mode: 'optional' }, capabilities: [] }), 'unchanged')
    const bad = [...LLM, decided(1, refusal('proof_invalid'))]
    t.match(fate(bad, { settings: { mode: 'off' } }), /^undecidable: of proofs that were not good/)
    t.equal(fate(bad, { capabilities: ['llm.chat', 'x'] }), 'unchanged')
    // Its key is not asked for while the mode is off.
    const token = [...LLM, decided(1, refusal('token_invalid'))]
    t.match(fate(token, { settings: { mode: 'off' } }), /^undecidable: of proofs that were not good/)
    t.equal(fate(token, { capabilities: [] }), 'unchanged')
  },
)

t.test(
  'docs/rehearsal.md#undecidable: a call that names no server goes to the only one there is',
  async (t) => {
    const other = { resource_id: 'mcpr_2', name: 'notes' }
    const two = [...mcp(['mcp.resources.read']), resource('created', 1, other)]
    const called = { action: 'mcp_resources_read', tool: null }
    const read = decidedTool(1, { ...called, authority: { demanded: ['mcp.resources.read'] } })
    const elsewhere = /^undecidable: calls that go to the only server there is/
    t.equal(fate([...two, read], { resource: { requiredCapability: 'x' } }), 'unchanged')
    t.equal(fate([...two, read], { bound: true }), 'unchanged')
    t.match(fate([...two, read], { bound: false }), elsewhere)
    t.match(fate([...two, read], { resource: { enabled: false } }), elsewhere)
    const second = { ...changes({}), bindings: new Map([[bindingName(BOT, 'mcpr_2'), true]]) }
    const walk = rehearser(second, ALL)
    for (const { leaf } of chainOf([...two, read])) walk.see(leaf)
    t.match(walk.result(), {
      unchanged: 0,
      undecidable: [{ why: /^calls that go to the only server/, decisions: 1 }],
    })
    const nowhere = decided(1, {
      ...{ ...called, model: null, ...refusal('mcp_not_bound') },
      ...{
        more: { path: '/v1/mcp', reason: 'mcp_not_bound' },
        authority: { demanded: ['mcp.resources.read'] },
      },
    })
    const unbound = two.filter(({ action }) => action !== 'mcp_binding.created')
    t.match(fate([...unbound, nowhere], { bound: true }), elsewhere)
    t.equal(fate([...unbound, nowhere], { capabilities: [] }), 'unchanged')
    const atDoor = decidedTool(1, {
      ...called,
      authority: { demanded: ['mcp.resources.read'] },
      more: { path: '/v1/mcp/files' },
    })
    t.equal(fate([...two, atDoor], { bound: false }), 'refused: mcp_not_bound')
    const prompt = decidedTool(1, {
      ...{ action: 'mcp_prompts_get', tool: null },
      authority: { demanded: ['mcp.prompts.get'] },
    })
    const prompts = mcp(['mcp.prompts.get'])
    t.equal(fate([...prompts, prompt], { resource: { enabled: false } }), 'refused: mcp_params_invalid')
  },
)

t.test('docs/rehearsal.md#undecidable: a summary that does not say enough', async (t) => {
  const summarised = {
    count: 7,
    since: '2026-01-01T00:00:00.000Z',
    until: '2026-01-01T00:01:00.000Z',
    digest: 'd',
  }
  const [strict, optional] = [
    { ...MODE, egress_dpop_mode: 'required' },
    { settings: { mode: 'optional' } } as const,
  ]
  const asked = (action: string, capabilities: readonly string[]) => [
    ...[started, loaded(strict), changed('agent.created', 1, { capabilities })],
    decided(1, {
      ...{ action, request_id: null, ...refusal('proof_required', { summarised }) },
      authority: { mode: strict, demanded: action === 'egress_llm_chat' ? ['llm.chat'] : [] },
    }),
  ]
  t.equal(fate(asked('egress_llm_chat', ['x']), optional), 'unchanged', 'it lacks the capability, too')
  t.match(fate(asked('egress_llm_chat', ['llm.chat']), optional), /^undecidable: .* a token narrowed it$/)
  t.match(fate(asked('mcp_request', ['llm.chat']), optional), /^undecidable: /)
  const lacks = refusal('capability_missing', { required_capability: 'llm.chat', summarised })
  const poor = [
    ...[...START, changed('agent.created', 1, { capabilities: ['x'] })],
    decided(1, { ...lacks, request_id: null }),
  ]
  const granted = { capabilities: ['llm.chat'] }
  const required = { settings: { mode: 'required' } } as const
  t.equal(fate(poor, granted), 'allowed: capability_missing llm.chat')
  t.equal(fate(poor, { ...granted, ...required }), 'undecidable: summaries that name no key')
  t.equal(fate(poor, required), 'unchanged')
  const fetched = [
    ...[
      started,
      loaded({ enforce_tools_call: true }),
      changed('agent.created', 1, { capabilities: ['http.get'] }),
    ],
    decided(1, {
      ...{ action: 'mcp_tools_call', model: null, request_id: null },
      ...refusal('capability_missing', { required_capability: 'mcp.tools.call', summarised }),
      authority: { demanded: ['http.get', 'mcp.tools.call'] },
    }),
  ]
  t.equal(
    fate(fetched, { settings: { enforceToolsCall: false } }),
    'undecidable: summaries that name no tool; its arguments were never looked at',
  )
  t.equal(fate(fetched, { capabilities: ['http.get', 'x'] }), 'unchanged')
  const nobody = { request_id: null, principal_id: null, principal_type: null, status: 'denied' }
  const detail = { reason: 'capability_missing', summarised }
  const ofMany = [...LLM, { ...decided(1), ...nobody, detail }]
  t.equal(fate(ofMany, granted), 'undecidable: summaries of several principals')
  t.equal(fate(ofMany, {}), 'unchanged')
})

t.test('docs/rehearsal.md#rule: a summary counts as often as it says', async (t) => {
  const lacks = refusal('capability_missing', {
    required_capability: 'llm.chat',
    summarised: {
      count: 7,
      since: '2026-01-01T00:00:00.000Z',
      until: '2026-01-01T00:01:00.000Z',
      digest: 'd',
    },
  })
  const empty = changed('agent.created', 1, { capabilities: [] })
  const rows = [...START, empty, decided(1, { ...lacks, request_id: null })]
  t.match(rehearsed(rows, { capabilities: ['llm.chat'] }), {
    decisions: 7,
    newlyAllowed: { decisions: 7, groups: [{ decisions: 7, samples: [] }] },
  })
  t.match(rehearsed(rows, {}), { decisions: 7, unchanged: 7 })
})

t.test(
  'docs/rehearsal.md#rule: a decision that does not follow is reported, and taken for nothing',
  async (t) => {
    const forged = [...START, changed('agent.created', 1, { capabilities: [] }), decided(1)]
    t.match(rehearsed(forged, {}), {
      decisions: 1,
      unchanged: 0,
      disagreements: 1,
      undecidable: [{ decisions: 1 }],
    })
  },
)

t.test('docs/rehearsal.md#window: since is inclusive, until is not; outcomes are no decisions', async (t) => {
  const first = decided(1)
  const rows = [
    ...LLM,
    first,
    ended(first),
    decided(2, { at: first.at + 1_000 }),
    decided(3, { at: first.at + 2_000 }),
  ]
  const instant = (ms: number) => new Date(first.at + ms).toISOString()
  const window = { since: instant(0), until: instant(2_000) }
  t.match(rehearsed(rows, { capabilities: [] }, window), {
    decisions: 2,
    principals: 1,
    newlyRefused: {
      decisions: 2,
      groups: [{ first_at: instant(0), last_at: instant(1_000), samples: ['req_1', 'req_2'] }],
    },
  })
})

t.test(
  'docs/rehearsal.md#config: another list of checks is judged by what its checks are on record to have said',
  async (t) => {
    const check = (name: string, more: JsonObject = {}) => ({
      ...{ name, digest: `${name} code`, options: `${name} file`, shadow: false },
      ...more,
    })
    const said = (name: string, verdict: string, shadow = false) => ({
      ...{ name, digest: `${name} code`, verdict },
      ...(shadow && { shadow }),
    })
    const START_WITH = [started, loaded({ checks: [check('old'), check('next', { shadow: true })] })]
    const calls = (...entries: readonly LedgerEntry[]) => [
      ...START_WITH,
      changed('agent.created', 1),
      ...entries,
    ]
    const settings = (...checks: readonly ReturnType<typeof check>[]) => ({ settings: { checks } })
    const next = check('next')
    const watched = (verdict: string) =>
      calls(decided(1, { authority: { checks: [said('old', 'pass'), said('next', verdict, true)] } }))

    t.equal(fate(watched('refuse'), {}), 'unchanged')
    t.equal(fate(watched('refuse'), settings(check('old'))), 'unchanged', 'without the one that watches')
    t.equal(fate(watched('refuse'), settings(check('old'), next)), 'refused: policy_denied')
    t.equal(fate(watched('failed'), settings(next)), 'refused: plugin_failed')
    t.equal(fate(watched('pass'), settings(next)), 'unchanged')
    const unasked = 'undecidable: the check next was never asked'
    t.equal(fate(watched('pass'), settings(check('next', { digest: 'other code' }))), unasked)
    t.equal(fate(watched('pass'), settings(check('next', { options: 'another file' }))), unasked)
    t.equal(fate(watched('pass'), settings(check('third'))), 'undecidable: the check third was never asked')
    t.equal(
      fate(watched('refuse'), settings(check('third'), next)),
      'refused: policy_denied',
      'whatever the third one says',
    )
    t.equal(
      fate(watched('pass'), { capabilities: [], ...settings(check('third')) }),
      'refused: capability_missing llm.chat',
    )
    const refused = (more: JsonObject[] = []) =>
      calls(
        decided(1, {
          ...refusal('policy_denied', { refused_by: 'old' }),
          authority: { checks: [said('old', 'refuse'), ...more] },
        }),
      )
    t.equal(fate(refused(), settings()), 'allowed: policy_denied', 'nobody refuses it any more')
    t.equal(fate(refused(), settings(next)), unasked, 'which stood behind')
    t.equal(fate(refused(), settings(check('old'), next)), 'unchanged')
    t.equal(fate(refused(), settings(check('old', { shadow: true }))), 'allowed: policy_denied')
    t.equal(fate(refused(), { ...settings(), capabilities: [] }), 'unchanged', 'it is refused all the same')
    // Rows of earlier versions do not say what a check's file said.
    const { options: _, ...older } = check('old')
    const before = [started, loaded({ checks: [older] }), changed('agent.created', 1)]
    const passed = [...before, decided(1, { authority: { checks: [said('old', 'pass')] } })]
    t.equal(fate(passed, {}), 'unchanged')
    t.equal(fate(passed, settings(check('old'))), 'undecidable: the check old was never asked')
  },
)
