import t from 'tap'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import {
  binding,
  chainOf,
  changed,
  decided,
  decidedTool,
  ended,
  loaded,
  note,
  recomputed,
  resource,
  started,
} from '../../../support/db/history.ts'

const of = (entries: readonly LedgerEntry[]) => recomputed(chainOf(entries))

const START = [started, loaded()]
const LLM = [...START, changed('agent.created', 1)]
const PINNED = { pinned: [['read', 'd1']] }
const mcp = (capabilities: readonly string[], more: JsonObject = {}) => [
  ...START,
  changed('agent.created', 1, { capabilities }),
  resource('created', 1, { ...PINNED, ...more }),
  binding('created'),
]
const refusal = (reason: string, more: JsonObject = {}) =>
  ({ status: 'denied', more: { reason, ...more } }) as const
const FOLLOWS = { recomputed: 1, disagree: 0, not_recomputable: {}, problems: [] }
const wrong = (seq: number) => ({ recomputed: 1, disagree: 1, problems: [{ seq }] })

const POLICY = { name: 'policy', digest: 'p', shadow: false }
const CHECKED = [
  started,
  loaded({ checks: [POLICY, { name: 'watch', digest: 'w', shadow: true }] }),
  changed('agent.created', 1),
]
const REFUSED = [{ name: 'policy', digest: 'p', verdict: 'refuse' }]
const byPolicy = (reason: string, authority: JsonObject = {}, more: JsonObject = {}) =>
  decided(1, {
    ...refusal(reason, { refused_by: 'policy', ...more }),
    authority: { checks: REFUSED, ...authority },
  })

t.test('docs/ledger.md#rule: a check may refuse with any reason, and nothing else is asked', async (t) => {
  const reasons = ['capability_missing', 'proof_required', 'mcp_tool_quarantined', 'mcp_not_bound']
  for (const reason of [...reasons, 'mcp_tool_unknown', 'policy_denied', 'plugin_failed'])
    t.match(of([...CHECKED, byPolicy(reason)]), FOLLOWS, reason)
  const later = [...CHECKED, changed('agent.deactivated', 2, { is_active: false })]
  t.match(of([...later, byPolicy('policy_denied')]), FOLLOWS, 'it may stand behind later revisions')
  const folded = byPolicy('capability_missing', {}, { summarised: { count: 3 } })
  t.match(of([...later, folded]), { recomputed: 3, disagree: 0 })
})

t.test('docs/ledger.md#rule: the refusal of a check names what was, whatever its reason', async (t) => {
  const said = (values: Partial<LedgerEntry>) => ({ ...byPolicy('policy_denied'), ...values })
  const check = (values: JsonObject) => byPolicy('policy_denied', { checks: [{ ...REFUSED[0], ...values }] })
  const forged: Readonly<Record<string, LedgerEntry>> = {
    'another principal': said({ principal_id: 'acme::other' }),
    'no principal': said({ principal_id: null }),
    'a revision that nobody made': byPolicy('policy_denied', { revision: 2 }),
    'another digest': check({ digest: 'q' }),
    'a check that there is not': check({ name: 'other' }),
    'a check that passed': check({ verdict: 'pass' }),
    'a verdict that is none': check({ verdict: 'perhaps' }),
    'a shadow': byPolicy('policy_denied', { checks: [] }, { refused_by: 'watch' }),
    'another order': byPolicy('policy_denied', {
      checks: [{ name: 'watch', digest: 'w', verdict: 'pass', shadow: true }, ...REFUSED],
    }),
    'an authority refusal with its name': byPolicy('capability_missing', { checks: [] }),
  }
  for (const [name, row] of Object.entries(forged)) t.match(of([...CHECKED, row]), wrong(4), name)
  const elsewhere = { ...refusal('model_unknown'), authority: { checks: [{ ...REFUSED[0], digest: 'q' }] } }
  t.match(of([...CHECKED, decided(1, elsewhere)]), wrong(4), 'in a row that is not recomputed as well')
})

t.test('docs/ledger.md#rule: an allowed row is judged as such, whatever else it says', async (t) => {
  const rows = mcp(['llm.chat', 'files.use'])
  for (const more of [
    { reason: 'mcp_not_bound' },
    { reason: 'x' },
    { reason: null },
    { summarised: { count: 1 } },
    { summarised: null },
  ]) {
    t.match(of([...rows, decidedTool(1, { more })]), { ...wrong(6), not_recomputable: {} })
    t.match(of([...rows, decided(1, { more })]), { ...wrong(6), not_recomputable: {} })
  }
  const unnamed = decidedTool(1, { more: { reason: 'mcp_not_bound' } })
  const authority = { demanded: ['files.use'], revision: 1, mode: {} }
  t.match(of([...rows, { ...unnamed, detail: { ...unnamed.detail, authority } }]), wrong(6))
  t.match(of([...rows, decided(1, { request_id: null })]), wrong(6), 'it is of a request')
  const bare = decided(1, { more: { summarised: { count: 2 }, authority: null } })
  t.match(of([...rows, bare]), { disagree: 2, not_recomputable: {} }, 'a summary without authority')
  t.match(of([...rows, decided(1, { action: 'mcp_request', model: null })]), wrong(6), 'and of no action')
})

t.test('docs/ledger.md#rule: of a SPIFFE id, some certificate must have been shown', async (t) => {
  const known = changed('agent.enrolled_spiffe', 1, { thumbprints: [], spiffe_id: 'spiffe://x/y' })
  t.match(of([...START, known, decided(1)]), FOLLOWS)
  t.match(of([...START, known, decided(1, { cert_thumbprint: null })]), wrong(4))
})

t.test(
  'docs/ledger.md#rule: mcp.tools.call is named for nothing where an empty set is refused',
  async (t) => {
    const call = (capabilities: readonly string[], values: JsonObject = {}, required = 'mcp.tools.call') =>
      of([
        ...mcp(capabilities, { required_capability: null }),
        decidedTool(1, {
          ...refusal('capability_missing', { required_capability: required }),
          authority: { demanded: ['mcp.tools.call'], ...values },
        }),
      ])
    t.match(call([]), FOLLOWS)
    t.match(call(['x'], { scope: ['y'] }), FOLLOWS, 'nothing that is held is in the scope')
    t.match(call(['x']), wrong(6))
    t.match(call(['x', 'y'], { scope: ['y'] }), wrong(6))
  },
)

t.test('docs/ledger.md#rule: the capability that was missing is named, and is the first one', async (t) => {
  const poor = [...START, changed('agent.created', 1, { capabilities: ['x'] })]
  const denied = (more: JsonObject, authority: JsonObject = {}) =>
    of([...poor, decided(1, { ...refusal('capability_missing', more), authority })])
  t.match(denied({ required_capability: 'llm.chat' }), FOLLOWS)
  t.match(denied({}), wrong(4), 'left out')
  t.match(denied({ required_capability: 'other' }), wrong(4))
  const summarised = { count: 1 }
  t.match(denied({ summarised }), FOLLOWS, 'a summary says it where all have the same')
  t.match(denied({ summarised, required_capability: 'llm.chat' }), FOLLOWS)
  for (const required_capability of ['other', 7, null])
    t.match(denied({ summarised, required_capability }), wrong(4))
  t.match(denied({ summarised }, { demanded: ['other'] }), wrong(4), 'its action demands one thing')
  for (const bad of [null, {}, { count: 0 }, { count: 'x' }, 1])
    t.match(denied({ summarised: bad }), wrong(4))
})

t.test('docs/ledger.md#authority: what is not formed like the page says disagrees', async (t) => {
  const rows = mcp(['llm.chat', 'files.use'])
  const reached = { id: 'mcpr_1', revision: 1 }
  for (const authority of [
    { resource: reached },
    { resource: reached, binding: 'mcpb_1', pin: 'd1' },
    { binding: 'mcpb_1' },
    { pin: 'd1' },
    { resource: null },
    { scope: null },
    { token: null },
    { checks: null },
  ]) {
    t.match(of([...rows, decided(1, { authority })]), wrong(6), JSON.stringify(authority))
    t.match(of([...rows, decided(1, { ...refusal('model_unknown'), authority })]), wrong(6))
  }
  for (const authority of [{ binding: null }, { pin: null }, { resource: { id: 'mcpr_1', revision: true } }])
    t.match(of([...rows, decidedTool(1, { authority })]), wrong(6), JSON.stringify(authority))
  t.match(of([...LLM, decided(1, refusal('mcp_not_bound'))]), { ...wrong(4), not_recomputable: {} })
  const elsewhere = { action: 'mcp_response', tool: 'other.read', ...refusal('mcp_not_bound') }
  t.match(of([...rows.slice(0, 4), decidedTool(1, elsewhere)]), wrong(5), 'the tool of another resource')
})

t.test('docs/ledger.md#replay: what a row of a change says stands, whatever its status', async (t) => {
  const odd = { ...changed('agent.capabilities_patched', 2, { capabilities: [] }), status: 'error' }
  t.match(of([...LLM, odd, decided(1)]), wrong(5))
  const denied = { ...odd, status: 'denied' }
  t.match(of([...LLM, denied, decided(1)]), wrong(5), 'one that says a state is no refusal')
  const refused = note('agent.capabilities_patched', { reason: 'capability_missing' }, { status: 'denied' })
  t.match(of([...LLM, refused, decided(1)]), { recomputed: 1, disagree: 0 }, 'a refusal makes no state')
  const other = changed('authority.snapshot', 1, { capabilities: [] })
  t.match(of([...LLM, other, decided(1)]), { recomputed: 1, disagree: 2 }, 'a snapshot that contradicts')
  const unmarked = { name: 'policy', digest: 'p' }
  t.match(of([started, loaded({ checks: [unmarked] })]), { disagree: 1 })
  t.match(of([...LLM, note('egress_other', {}, { status: 'allowed' })]), { recomputed: 0, disagree: 0 })
})

t.test('docs/ledger.md#replay: a binding stands until it is revoked itself', async (t) => {
  const rows = [...mcp(['files.use']), binding('created', { binding: 'mcpb_2' })]
  const second = binding('revoked', { binding: 'mcpb_2' })
  t.match(of([...rows, second, decidedTool(1)]), FOLLOWS)
  t.match(of([...rows, second, binding('revoked'), decidedTool(1)]), wrong(9))
  const moved = [
    ...rows.slice(0, 5),
    changed('agent.created', 1, { subject: 'acme::two' }),
    binding('created', { subject: 'acme::two' }),
  ]
  t.match(of([...moved, decidedTool(1)]), wrong(8), 'it is of one principal')
})

t.test(
  'docs/ledger.md#pairs: a start ends the calls of its own stream, and all streams are judged',
  async (t) => {
    const [one, two] = [decided(1), decided(2)]
    const elsewhere = (entries: readonly LedgerEntry[]) =>
      chainOf(entries).map((row) => ({ ...row, stream: 'other' }))
    const first = chainOf([...LLM, one, ended(one), two])
    t.match(recomputed([...first, ...elsewhere([started, one, started])]), {
      recomputed: 3,
      disagree: 0,
      not_recomputable: {},
      allowed_without_outcome: 1,
      outcomes_without_decision: 0,
      open: 1,
      problems: [{ stream: 'other', seq: 2 }],
    })
    const stale = decided(3, { authority: { revision: 2 } })
    t.match(recomputed([...first, ...elsewhere([started, stale])]), {
      recomputed: 3,
      disagree: 1,
      problems: [{ stream: 'other', seq: 2 }],
    })
  },
)
