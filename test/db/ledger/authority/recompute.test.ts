import t from 'tap'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import type { LeafVersion } from '../../../../db/ledger/record/leaf.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import {
  BOT,
  binding,
  chainer,
  chainOf,
  changed,
  decided,
  decidedTool,
  ended,
  JKT,
  loaded,
  note,
  recomputed,
  resource,
  started,
  THUMBPRINT,
} from '../../../support/db/history.ts'
import { AT } from '../../../support/db/scratch-ledger.ts'

const of = (entries: readonly LedgerEntry[], versions: readonly LeafVersion[] = []) =>
  recomputed(chainOf(entries, versions))

const FILES = ['files.use', 'llm.chat']
const START = [started, loaded()]
const LLM = [...START, changed('agent.created', 1)]
const PINNED = { pinned: [['read', 'd1']] }
const MCP = [
  ...START,
  changed('agent.created', 1, { capabilities: FILES }),
  resource('created', 1, PINNED),
  binding('created'),
]

const refusal = (reason: string, more: JsonObject = {}) =>
  ({ status: 'denied', more: { reason, ...more } }) as const

t.test('docs/ledger.md#rule: honest decisions agree, allowed and refused, of both kinds', async (t) => {
  const [chat, read] = [decided(1), decidedTool(2)]
  t.match(of([...LLM, chat, ended(chat)]), { recomputed: 1, disagree: 0, not_recomputable: {}, open: 0 })
  t.match(of([...MCP, read, ended(read)]), { recomputed: 1, disagree: 0, problems: [] })
  const refused: readonly (readonly [string, readonly LedgerEntry[]])[] = [
    [
      'no capability',
      [
        ...LLM.slice(0, 2),
        changed('agent.created', 1, { capabilities: [] }),
        decided(1, refusal('capability_missing', { required_capability: 'llm.chat' })),
      ],
    ],
    [
      'a proof is required',
      [
        started,
        loaded({ egress_dpop_mode: 'required' }),
        changed('agent.created', 1),
        decided(1, {
          ...refusal('proof_required'),
          authority: { demanded: [], mode: { egress_dpop_mode: 'required', no_downgrade: false } },
        }),
      ],
    ],
    ['not bound', [...MCP.slice(0, 4), decidedTool(1, refusal('mcp_not_bound'))]],
    [
      'disabled',
      [
        ...MCP,
        resource('updated', 2, { enabled: false }),
        decidedTool(1, {
          ...refusal('mcp_tool_unknown'),
          authority: { resource: { id: 'mcpr_1', revision: 2 } },
        }),
      ],
    ],
    ['no such tool', [...MCP, decidedTool(1, { tool: 'files.nope', ...refusal('mcp_tool_unknown') })]],
    [
      'not bound at the door of the resource, whatever the tool',
      [
        ...MCP.slice(0, 4),
        decidedTool(1, { tool: 'files.nope', ...refusal('mcp_not_bound', { path: '/v1/mcp/files' }) }),
      ],
    ],
    [
      'quarantined',
      [
        ...MCP,
        resource('tool_quarantined', 2, { quarantined: [['read', 'd2']] }),
        decidedTool(1, {
          ...refusal('mcp_tool_quarantined'),
          authority: { resource: { id: 'mcpr_1', revision: 2 } },
        }),
      ],
    ],
    [
      'a check refused',
      [
        started,
        loaded({ checks: [{ name: 'policy', digest: 'p', shadow: false }] }),
        changed('agent.created', 1),
        decided(1, {
          ...refusal('policy_denied', { refused_by: 'policy' }),
          authority: { checks: [{ name: 'policy', digest: 'p', verdict: 'refuse' }] },
        }),
      ],
    ],
  ]
  for (const [name, rows] of refused) t.match(of(rows), { recomputed: 1, disagree: 0, problems: [] }, name)
})

t.test('docs/ledger.md#rule: what a resource demands: nothing, one tool’s own, and the method', async (t) => {
  const call = (more: JsonObject, demanded: readonly string[], capabilities = FILES) =>
    of([
      started,
      loaded({ enforce_tools_call: more.enforce === true }),
      changed('agent.created', 1, { capabilities }),
      resource('created', 1, { ...PINNED, ...more }),
      binding('created'),
      decidedTool(1, { authority: { demanded } }),
    ])
  t.match(call({ required_capability: null }, []), { disagree: 0 })
  t.match(call({ required_capability: null }, [], []), { disagree: 1, problems: [{ seq: 6 }] })
  t.match(call({ tool_capabilities: { read: 'llm.chat' } }, ['llm.chat']), { disagree: 0 })
  t.match(call({ tool_capabilities: { read: 'llm.chat' } }, ['files.use']), { disagree: 1 })
  const both = ['files.use', 'mcp.tools.call']
  t.match(call({ enforce: true }, both, [...FILES, 'mcp.tools.call']), { disagree: 0 })
  t.match(call({ enforce: true }, both), { disagree: 1 })
  t.match(call({ enforce: true }, ['files.use']), { disagree: 1 })
})

t.test('docs/ledger.md#authority: each member that is forged is found, and the row is named', async (t) => {
  const checks = [{ name: 'policy', digest: 'p', shadow: false }]
  const honest = { checks: [{ name: 'policy', digest: 'p', verdict: 'pass' }] }
  const rows = [
    started,
    loaded({ checks }),
    changed('agent.created', 1, { capabilities: ['llm.chat'], dpop_jkts: [[JKT, null]] }),
    changed('agent.capabilities_patched', 2, { capabilities: FILES, dpop_jkts: [[JKT, null]] }),
    resource('created', 1, PINNED),
    resource('updated', 2),
    binding('created'),
  ]
  const authority = { revision: 2, resource: { id: 'mcpr_1', revision: 2 }, ...honest }
  const judged = (forged: JsonObject, values: Partial<LedgerEntry> = {}) =>
    of([...rows, decidedTool(1, { dpop_jkt: JKT, ...values, authority: { ...authority, ...forged } })])
  t.match(judged({}), { recomputed: 1, disagree: 0, problems: [] })
  const forgeries: Readonly<Record<string, JsonObject>> = {
    demanded: { demanded: ['llm.chat'] },
    'demanded, nothing': { demanded: [] },
    'revision before': { revision: 1 },
    'revision that nobody made': { revision: 3 },
    scope: { scope: ['llm.chat'] },
    'resource unknown': { resource: { id: 'mcpr_2', revision: 1 } },
    'resource before': { resource: { id: 'mcpr_1', revision: 1 } },
    'resource left out': { resource: null },
    binding: { binding: 'mcpb_2' },
    'binding left out': { binding: null },
    pin: { pin: 'd2' },
    mode: { mode: { egress_dpop_mode: 'off', no_downgrade: false } },
    no_downgrade: { mode: { egress_dpop_mode: 'optional', no_downgrade: true } },
    'checks left out': { checks: [] },
    'a check’s digest': { checks: [{ name: 'policy', digest: 'q', verdict: 'pass' }] },
    'a check’s verdict': { checks: [{ name: 'policy', digest: 'p', verdict: 'refuse' }] },
    'a check more': { checks: [...honest.checks, { name: 'other', digest: 'q', verdict: 'pass' }] },
    'a shadow that is none': { checks: [{ name: 'policy', digest: 'p', verdict: 'pass', shadow: true }] },
  }
  for (const [name, forged] of Object.entries(forgeries))
    t.match(judged(forged), { recomputed: 1, disagree: 1, problems: [{ stream: 'main', seq: 8 }] }, name)
  const columns: readonly Partial<LedgerEntry>[] = [
    { cert_thumbprint: 'cd'.repeat(32) },
    { cert_thumbprint: null },
    { dpop_jkt: 'x'.repeat(43) },
    { tool: 'files.write' },
    { tool: null },
    { principal_id: 'acme::other' },
    { config_digest: 'ef'.repeat(32) },
    { detail: { path: '/v1/mcp' } },
  ]
  for (const values of columns)
    t.match(judged({}, values), { disagree: 1, problems: [{ seq: 8 }] }, JSON.stringify(values))
  const unreached = { demanded: ['files.use'], revision: 2, ...honest }
  const call = { action: 'mcp_tools_call', tool: 'files.read', dpop_jkt: JKT, authority: unreached }
  t.match(of([...rows, decided(1, call)]), { disagree: 1, problems: [{ problem: /not name the resource/ }] })
  t.match(judged({ token: true }, { dpop_jkt: 'x'.repeat(43) }), { disagree: 0 }, 'a token’s own key')
})

t.test('docs/ledger.md#rule: a refusal must fail where its reason says, and nowhere before', async (t) => {
  const judged = (reason: string, more: JsonObject = {}) => of([...LLM, decided(1, refusal(reason, more))])
  t.match(judged('capability_missing'), { disagree: 1, problems: [{ seq: 4, problem: /allow it/ }] })
  t.match(judged('proof_required'), { disagree: 1 })
  const overtaken = [
    ...LLM,
    changed('agent.deactivated', 2, { is_active: false }),
    decided(1, refusal('principal_deactivated')),
  ]
  t.match(of(overtaken), { disagree: 0, recomputed: 0 }, 'it names the revision that the call came with')
  const poor = changed('agent.created', 1, { capabilities: ['other'] })
  t.match(of([...START, poor, decided(1)]), { disagree: 1, problems: [{ problem: /capability_missing/ }] })
  const wrong = refusal('capability_missing', { required_capability: 'other' })
  t.match(of([...START, poor, decided(1, wrong)]), { disagree: 1 })
})

t.test(
  'docs/ledger.md#rule: grace: a certificate and a key are honoured before their end only',
  async (t) => {
    const [past, future] = [new Date(AT).toISOString(), new Date(AT + 1).toISOString()]
    const judged = (until: string) => {
      const pins = {
        thumbprints: [
          ['ef'.repeat(32), null],
          [THUMBPRINT, until],
        ],
        dpop_jkts: [
          ['n', null],
          [JKT, until],
        ],
      }
      return of([...START, changed('agent.created', 1, pins), decided(1, { dpop_jkt: JKT })])
    }
    t.match([judged(future), judged(past)], [{ disagree: 0 }, { disagree: 1 }])
    const svid = changed('agent.enrolled_spiffe', 1, { thumbprints: [], spiffe_id: 'spiffe://x/y' })
    t.match(of([...START, svid, decided(1)]), { disagree: 0 })
  },
)

t.test('docs/ledger.md#recomputing: what rows do not say is counted by why, never guessed', async (t) => {
  const old = decided(1)
  const versions: readonly LeafVersion[] = [1, 1, 2, 2, 2, 2]
  const snapshot = changed('authority.snapshot', 7, { bindings: [['mcpb_1', 'mcpr_1']] })
  const pinned = resource('x', 3, PINNED)
  const found = of(
    [
      old,
      ended(old),
      ...START,
      snapshot,
      { ...pinned, action: 'authority.snapshot' },
      decided(2, { authority: { revision: 7 } }),
      decided(3, { ...refusal('model_unknown'), authority: { revision: 7 } }),
    ],
    versions,
  )
  t.match(found, {
    recomputed: 1,
    disagree: 0,
    not_recomputable: { 'of version 1': 1, 'refused for what no row holds': 1 },
  })
  const summary = (authority: JsonObject | null) => {
    const summarised = { count: 40, since: 'x', until: 'x', digest: 'x' }
    const more = { reason: 'capability_missing', summarised, ...(authority === null && { authority: null }) }
    return decided(9, {
      status: 'denied',
      request_id: null,
      cert_thumbprint: null,
      more,
      authority: authority ?? {},
    })
  }
  const poor = [
    ...START,
    changed('agent.created', 1, { capabilities: ['x'] }),
    changed('agent.capabilities_set', 2),
  ]
  t.match(of([...poor, summary({ revision: 1 })]), { recomputed: 40, disagree: 0 })
  t.match(of([...poor, summary({ revision: 2 })]), { recomputed: 40, disagree: 40 })
  t.match(of([...poor, summary(null)]), {
    recomputed: 0,
    not_recomputable: { 'summaries that name no revision': 40 },
  })
  t.match(of([...LLM, decided(1, { status: 'invalid' })]), {
    recomputed: 0,
    disagree: 0,
    not_recomputable: {},
  })
})

t.test('docs/ledger.md#replay: rows of changes that contradict each other are named', async (t) => {
  const faults: readonly (readonly [string, readonly LedgerEntry[]])[] = [
    ['a revision left out', [...LLM, changed('agent.deactivated', 3)]],
    ['a revision twice', [...LLM, changed('agent.deactivated', 1)]],
    ['a first revision that is not 1', [...START, changed('agent.created', 2)]],
    ['no state', [...LLM, note('agent.deactivated', { subject: BOT, revision: 2 })]],
    ['another state in a snapshot', [...LLM, changed('authority.snapshot', 1, { capabilities: ['more'] })]],
    ['a binding of nobody', [...START, resource('created', 1), binding('created')]],
    ['a configuration without its modes', [started, note('config.loaded', {})]],
  ]
  for (const [name, rows] of faults)
    t.match(of(rows), { disagree: 1, problems: [{ seq: rows.length }] }, name)
  const again = changed('agent.enrolled_byoca', 3)
  t.match(of([...LLM, changed('agent.deactivated', 2, { is_active: false }), again]), { disagree: 0 })
  const gone = [...MCP, resource('deleted', 2), decidedTool(1)]
  t.match(of(gone), { disagree: 1, problems: [{ seq: 7 }] })
  const erased = [
    ...MCP,
    changed('agent.erased', 2, { is_active: true, capabilities: FILES }),
    decidedTool(1, { authority: { revision: 2 } }),
  ]
  t.match(of(erased), { disagree: 1, problems: [{ problem: /mcp_not_bound/ }] })
})

t.test(
  'docs/ledger.md#recomputing: decisions and outcomes are pairs; what is under way is no fault',
  async (t) => {
    const [one, two] = [decided(1), decided(2)]
    t.match(of([...LLM, one, two, ended(one)]), { open: 1, allowed_without_outcome: 0, problems: [] })
    t.match(of([...LLM, one, started]), { allowed_without_outcome: 1, problems: [{ seq: 4 }] })
    t.match(of([...LLM, ended(one)]), { outcomes_without_decision: 1, problems: [{ seq: 4 }] })
    t.match(of([...LLM, one, ended(one), ended(one)]), {
      outcomes_without_decision: 1,
      problems: [{ seq: 6 }],
    })
    t.match(of([...LLM, one, one]), { outcomes_without_decision: 1 }, 'one request, two decisions')
    const crash: LedgerEntry = { ...one, status: 'unknown', detail: { reason: 'crash' } }
    t.match(of([...LLM, one, crash, started]), {
      allowed_without_outcome: 0,
      outcomes_without_decision: 0,
      open: 0,
    })
  },
)

t.test('docs/ledger.md#rule: refusals that rows do not say enough of, each with its why', async (t) => {
  const why = (rows: readonly LedgerEntry[]) => {
    const { recomputed, disagree, not_recomputable: found } = of(rows)
    return recomputed + disagree === 0 ? Object.keys(found) : of(rows)
  }
  const unnamed = { ...refusal('mcp_not_bound'), action: 'mcp_prompts_get', model: null }
  t.same(why([...LLM, decided(1, unnamed)]), ['no resource is named, for there was none'])
  const annotated = refusal('mcp_tool_quarantined')
  t.match(why([...MCP, decidedTool(1, annotated)]), [/^approved tools that are annotated/])
  const answer = { action: 'mcp_response', tool: null }
  t.same(why([...MCP, decidedTool(1, answer)]), ['answers that name no tool'])
  const unread = { action: 'mcp_request', ...refusal('capability_missing') }
  t.same(why([...LLM, decided(1, unread)]), ['no resource is named'])
  t.same(why([...MCP, decidedTool(1, { action: 'mcp_request' })]), ['an action that has no rule'])
  const folded = { summarised: { count: 3 } }
  const summary = { ...refusal('mcp_not_bound', folded), request_id: null, cert_thumbprint: null }
  t.same(why([...LLM, decided(1, summary)]), ['summaries of several causes'])
  const many = Array.from({ length: 20 }, (_, at) => changed('agent.capabilities_patched', at + 2))
  const late = { ...refusal('capability_missing', folded), cert_thumbprint: null }
  t.same(why([...LLM, ...many, decided(1, late)]), ['summaries of a revision long past'])
})

t.test(
  'docs/ledger.md#rule: an answer demands what its call does; levels of logs what tools do',
  async (t) => {
    t.match(of([...MCP, decidedTool(1, { action: 'mcp_response' })]), { recomputed: 1, disagree: 0 })
    const revoked = [...MCP, binding('revoked')]
    const answer = { action: 'mcp_response', ...refusal('mcp_not_bound') }
    t.match(of([...revoked, decidedTool(1, answer)]), { recomputed: 1, disagree: 0 })
    t.match(of([...revoked, decidedTool(1)]), { disagree: 1, problems: [{ problem: /mcp_not_bound/ }] })
    const off = [...MCP, resource('updated', 2, { enabled: false })]
    const now = { resource: { id: 'mcpr_1', revision: 2 } }
    t.match(of([...off, decidedTool(1, { ...answer, authority: now })]), { recomputed: 1, disagree: 0 })
    const level = { action: 'mcp_logging_setLevel', tool: null }
    t.match(of([...MCP, decidedTool(1, level)]), { recomputed: 1, disagree: 0 })
    t.match(of([...MCP, decidedTool(1, { ...level, authority: { demanded: [] } })]), { disagree: 1 })
    const complete = (capability: string) =>
      of([
        ...START,
        changed('agent.created', 1, { capabilities: [capability] }),
        resource('created', 1),
        binding('created'),
        decidedTool(1, {
          action: 'mcp_completion_complete',
          tool: null,
          authority: { demanded: [capability] },
        }),
      ])
    t.match(complete('mcp.prompts.get'), { recomputed: 1, disagree: 0 })
    t.match(complete('mcp.resources.read'), { recomputed: 1, disagree: 0 })
    t.match(complete('llm.chat'), { disagree: 1 })
  },
)

t.test(
  'docs/ledger.md#replay: a tool that is gone, and a resource that is deleted, are reached no more',
  async (t) => {
    const now = { resource: { id: 'mcpr_1', revision: 2 } }
    const gone = [...MCP, resource('updated', 2, { gone: ['read'] })]
    t.match(of([...gone, decidedTool(1, { authority: now })]), {
      problems: [{ problem: /mcp_tool_unknown/ }],
    })
    const back = [...gone, resource('updated', 3, PINNED)]
    t.match(of([...back, decidedTool(1, { authority: { resource: { id: 'mcpr_1', revision: 3 } } })]), {
      disagree: 0,
    })
    const anew = [...MCP, resource('deleted', 2), resource('created', 1, PINNED)]
    t.match(of([...anew, decidedTool(1)]), { disagree: 1, problems: [{ problem: /mcp_not_bound/ }] })
  },
)

t.test(
  'docs/ledger.md#rule: a refusal by a check says so, and the row of an old configuration counts',
  async (t) => {
    const checks = [{ name: 'policy', digest: 'p', shadow: false }]
    const rows = [started, loaded({ checks }), changed('agent.created', 1)]
    const said = refusal('policy_denied', { refused_by: 'policy' })
    t.match(of([...rows, decided(1, said)]), { disagree: 1, problems: [{ problem: /does not say that/ }] })
    const passed = { checks: [{ name: 'policy', digest: 'p', verdict: 'pass' }] }
    t.match(of([...rows, decided(1, { ...said, authority: passed })]), { disagree: 1 })
    const shadow = [
      started,
      loaded({ checks: [{ ...checks[0], name: 'policy', digest: 'p', shadow: true }] }),
      changed('agent.created', 1),
    ]
    t.match(of([...shadow, decided(1)]), { recomputed: 1, disagree: 0 })
    const far = { name: 'policy', digest: null }
    const twins = [
      started,
      loaded({ checks: [...checks, { ...far, shadow: false }] }),
      changed('agent.created', 1),
    ]
    const both = (second: JsonObject) =>
      of([
        ...twins,
        decided(1, { authority: { checks: [...passed.checks, { ...far, verdict: 'pass', ...second }] } }),
      ])
    t.match(both({}), { recomputed: 1, disagree: 0 }, 'two of one name, one whose code lies elsewhere')
    t.match(both({ verdict: 'failed' }), { disagree: 1, problems: [{ problem: /the check policy/ }] })
    t.match(both({ digest: 'p' }), { disagree: 1 })
    const other = { config_digest: 'ef'.repeat(32) }
    t.match(of([...LLM, loaded({ egress_dpop_mode: 'required' }, other), decided(1)]), { disagree: 0 })
  },
)

t.test('docs/ledger.md#recomputing: of rows of version 1 no pairs are demanded', async (t) => {
  const [one, two] = [decided(1), decided(2)]
  const nothing = { allowed_without_outcome: 0, outcomes_without_decision: 0, problems: [] }
  t.match(of([one, ended(two), started], [1, 1, 1]), { ...nothing, open: 0 })
  t.match(of([one, ended(one)], [1, 2]), nothing, 'a call that the upgrade interrupted')
})

/** The rows of several streams, each a chain of its own: `[stream, entry]` in their order. */
function streamed(list: readonly (readonly [stream: string, made: LedgerEntry])[]) {
  const next = new Map<string, ReturnType<typeof chainer>>()
  return recomputed(
    list.map(([stream, made]) => {
      const chain = next.get(stream) ?? chainer()
      next.set(stream, chain)
      return { ...chain(made), stream }
    }),
  )
}

t.test(
  'docs/ledger.md#places a decision of one stream rests on the change before it in another',
  async (t) => {
    const begun = (stream: string) => START.map((made) => [stream, made] as const)
    const both = [...begun('a'), ...begun('b'), ['a', changed('agent.created', 1)] as const]
    const patched = ['a', changed('agent.capabilities_patched', 2, { capabilities: [] })] as const
    t.match(streamed([...both, ['b', decided(1)], patched]), { recomputed: 1, disagree: 0 })
    t.match(streamed([...both, patched, ['b', decided(1)]]), {
      ...{ recomputed: 1, disagree: 1, not_recomputable: {} },
      problems: [{ stream: 'b', seq: 3 }],
    })
  },
)

t.test(
  'docs/ledger.md#pairs another stream may end a call as unknown, and its start ends none',
  async (t) => {
    const rows = [...LLM.map((made) => ['a', made] as const), ['a', decided(1)] as const]
    const unknown: LedgerEntry = { ...ended(decided(1)), status: 'unknown' }
    const sound = { allowed_without_outcome: 0, outcomes_without_decision: 0, problems: [] }
    t.match(streamed([...rows, ['b', started]]), { ...sound, open: 1 })
    t.match(streamed([...rows, ['b', started], ['b', unknown], ['a', started]]), { ...sound, open: 0 })
    t.match(streamed([...rows, ['a', started]]), { allowed_without_outcome: 1, open: 0 })
    t.match(streamed([...rows, ['b', ended(decided(1))]]), {
      ...{ outcomes_without_decision: 1, open: 1 },
      problems: [{ stream: 'b', seq: 1 }],
    })
    t.match(streamed([...rows, ['b', unknown], ['a', ended(decided(1))]]), {
      ...{ outcomes_without_decision: 1, open: 0 },
      problems: [{ stream: 'a', seq: 5 }],
    })
    t.match(streamed([...rows, ['b', decided(1)]]), { outcomes_without_decision: 1, open: 1 })
  },
)
