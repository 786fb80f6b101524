import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import t from 'tap'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import type { LeafVersion } from '../../db/ledger/record/leaf.ts'
import { exitCodeOf, inspectRows } from '../../db/ledger/verify/inspect.ts'
import type { JsonObject } from '../../db/support/json.ts'
import { ACCOUNTS_CONTRADICT, ACCOUNTS_FOLLOW } from '../support/db/account-rows.ts'
import {
  BOT,
  binding,
  chainOf,
  changed,
  decided,
  decidedTool,
  ended,
  exportOf as exportLines,
  loaded,
  note,
  recomputed,
  resource,
  started,
  THUMBPRINT,
} from '../support/db/history.ts'
import { PEOPLE_CONTRADICT, PEOPLE_FOLLOW } from '../support/db/people-rows.ts'
import { exportOf, resealed } from '../support/db/resealed.ts'
import { exportedRows, streamLines } from '../support/db/row-by-row.ts'
import type { Json } from '../support/gateway.ts'

const SCRIPT = join(import.meta.dirname, '../../docs/verify.py')
const python = spawnSync('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 9))'])
const skip = python.status === 0 ? false : 'python3 (3.9 or newer) is not installed here'

/** What both verifiers say of these rows; the numbers of the page's own one. */
function judge(entries: readonly LedgerEntry[], versions: readonly LeafVersion[] = []) {
  const rows = chainOf(entries, versions)
  const input = exportLines(rows)
  const { status, stdout } = spawnSync('python3', [SCRIPT, '-', '--authority', '--json'], {
    input,
    encoding: 'utf8',
  })
  const { problems, ...numbers } = JSON.parse(stdout).authority
  const named = (list: readonly { stream: string; seq: number }[]) => list.map(({ seq }) => seq)
  const { problems: ours, ...same } = recomputed(rows)
  return { code: status, theirs: { ...numbers, at: named(problems) }, ours: { ...same, at: named(ours) } }
}

const parsed = (text: string): readonly Json[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

const ALL = ['files.use', 'files.write', 'http.get', 'llm.chat', 'mcp.prompts.get', 'mcp.tools.list']
const PINNED = { pinned: [['read', 'd1']] }
const stage = (more: JsonObject = {}, capabilities: readonly string[] = ALL): readonly LedgerEntry[] => [
  started,
  loaded(),
  changed('agent.created', 1, { capabilities }),
  resource('created', 1, { ...PINNED, ...more }),
  binding('created'),
]
const unbound = stage().slice(0, 4)
const refusal = (reason: string, more: JsonObject = {}) =>
  ({ status: 'denied', more: { reason, ...more } }) as const
const missing = (capability: string) => refusal('capability_missing', { required_capability: capability })
const at = (revision: number) => ({ resource: { id: 'mcpr_1', revision } })
const LLM = [started, loaded(), changed('agent.created', 1)]
const summary = (authority: JsonObject = {}) =>
  decided(9, {
    ...refusal('capability_missing', { summarised: { count: 40, since: 'x', until: 'x', digest: 'x' } }),
    request_id: null,
    cert_thumbprint: null,
    authority,
  })
const patched = (many: number) =>
  Array.from({ length: many }, (_, index) => changed('agent.capabilities_patched', index + 2))
const stop = (what: 'begun' | 'ended', scope: JsonObject | string, id = 'stp_1'): LedgerEntry =>
  note(`stop.${what}`, { stop: id, scope, reason: 'a key has leaked' })
const stopped = (more: JsonObject = {}) => refusal('stopped', { refused_by: 'stop', stop: 'stp_1', ...more })
/** The scopes that are for the agent's call of a model, and those that are not. */
const [FOR_IT, NOT_FOR_IT] = [
  ['all', 'llm', { principal: BOT }, { kind: 'agents' }],
  ['mcp', { principal: 'acme::other' }, { kind: 'users' }, { resource: 'mcpr_1' }],
] as const
const poor = [started, loaded(), changed('agent.created', 1, { capabilities: ['x'] })]

/** An agent known by its SPIFFE id, by CAs of each kind, in a stream whose decisions name the CA. */
const SVID = [
  note('service.started', { node: '24', names_anchors: true, signing_keys: ['k1'] }),
  loaded(),
  note('ca.attached', { kind: 'spiffe', digests: ['ca1', 'ca2'] }),
  changed('agent.enrolled_spiffe', 1, {
    ...{ thumbprints: [], spiffe_id: 'spiffe://x/y' },
    ...{ trusted_cas: ['ca1'], trust_bundle: ['own1'] },
  }),
]
const by = (anchor: string, id = 1): LedgerEntry => decided(id, { authority: { anchor } })
const replaced = (until: string): LedgerEntry =>
  note('ca.bundle_replaced', {
    ...{ subject: BOT, digests: ['own2'], previous: ['own1'], previous_valid_until: until },
    previous_bundles: [[['own1'], until]],
  })

/** The approval of the call of `decidedTool`, whose tool has a rule. */
const HELD = [...stage({ tool_approvals: { read: 'operator' } })]
const LATE = '2999-01-01T00:00:00.000Z'
const CALL = {
  ...{
    approval: 'apr_1',
    subject: BOT,
    resource: { id: 'mcpr_1', revision: 1 },
    tool: 'files.read',
    pin: 'd1',
  },
  ...{ call_digest: 'c1', arguments_bytes: 2, expires_at: LATE },
}
const requested = (more: JsonObject = {}) => note('approval.requested', { ...CALL, ...more })
const ANN = { principal_id: 'acme::operator::ann', principal_type: 'operator' } as const
const given = (more: Partial<LedgerEntry> = ANN) => note('approval.approved', CALL, more)
const byApproval = (id: number, more: JsonObject = {}): LedgerEntry =>
  decidedTool(id, { authority: { approval: 'apr_1', call_digest: 'c1', ...more } })

/** The same of a person's call, which the person approves in a session of their own. */
const OWN = { approver: 'person' } as const
const ofPerson = (rule: string) => [
  ...[started, loaded(), changed('user.created', 1, { capabilities: ALL })],
  resource('created', 1, { ...PINNED, tool_approvals: { read: rule } }),
  binding('created'),
]
const byPerson = (more: JsonObject = { via: 'oidc' }) =>
  note('approval.approved', { ...CALL, ...more }, { principal_id: BOT, principal_type: 'user' })
const callOfPerson = { ...byApproval(1), principal_type: 'user' } as const

const FOLLOW: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'a call that nobody has approved': [...HELD, decidedTool(1, refusal('approval_required'))],
  'a call that somebody else has approved': [...HELD, requested(), given(), byApproval(1)],
  'a further round of it': [
    ...[...HELD, requested(), given(), byApproval(1)],
    byApproval(2, { continued: true }),
  ],
  'a call that its own person has approved': [
    ...[...ofPerson('person'), requested(OWN), byPerson(), callOfPerson],
  ],
  'a call of a person that an operator approves': [
    ...[...ofPerson('person'), requested(), given(), callOfPerson],
  ],
  'a server whose every tool but one is so': [
    ...stage({ approval: 'person', tool_approvals: { read: null } }),
    decidedTool(1),
  ],
  'approvals that were declined, and over': [
    ...[...HELD, requested(), note('approval.declined', CALL, ANN)],
    ...[requested({ approval: 'apr_2' }), note('approval.expired', { ...CALL, approval: 'apr_2' })],
    decidedTool(1, refusal('approval_required')),
  ],
  'a tool’s call': [...stage(), decidedTool(1)],
  ...Object.fromEntries(
    FOR_IT.map((scope) => [
      `a call that is stopped: ${JSON.stringify(scope)}`,
      [...LLM, stop('begun', scope), decided(1, stopped())],
    ]),
  ),
  ...Object.fromEntries(
    NOT_FOR_IT.map((scope) => [
      `a stop that is not for the call: ${JSON.stringify(scope)}`,
      [...LLM, stop('begun', scope), decided(1), ended(decided(1))],
    ]),
  ),
  'a stop of a server, and a call of its tool': [
    ...[...stage(), stop('begun', { resource: 'mcpr_1' }), decidedTool(1, stopped())],
  ],
  'a call after the end of a stop': [
    ...[...LLM, stop('begun', 'all'), stop('ended', 'all'), decided(1), ended(decided(1))],
  ],
  'a tool’s own capability': [
    ...stage({ tool_capabilities: { read: 'files.write' } }),
    decidedTool(1, { authority: { demanded: ['files.write'] } }),
  ],
  'a resource that demands nothing': [
    ...stage({ required_capability: null }),
    decidedTool(1, { authority: { demanded: [] } }),
  ],
  'an empty set where nothing is demanded': [
    ...stage({ required_capability: null }, []),
    decidedTool(1, { ...missing('mcp.tools.call'), authority: { demanded: ['mcp.tools.call'] } }),
  ],
  'not bound': [...unbound, decidedTool(1, refusal('mcp_not_bound'))],
  'not bound at its door, before its tool': [
    ...unbound,
    decidedTool(1, { tool: 'files.nope', ...refusal('mcp_not_bound', { path: '/v1/files/mcp' }) }),
  ],
  'no such tool': [...stage(), decidedTool(1, { tool: 'files.nope', ...refusal('mcp_tool_unknown') })],
  disabled: [
    ...stage(),
    resource('updated', 2, { enabled: false }),
    decidedTool(1, { ...refusal('mcp_tool_unknown'), authority: at(2) }),
  ],
  quarantined: [
    ...stage(),
    resource('tool_quarantined', 2, { quarantined: [['read', 'd2']] }),
    decidedTool(1, { ...refusal('mcp_tool_quarantined'), authority: at(2) }),
  ],
  'approved again': [
    ...stage({ pinned: [], quarantined: [['read', 'd1']] }),
    resource('tool_approved', 2, { pinned: [['read', 'd2']] }),
    decidedTool(1, { authority: { ...at(2), pin: 'd2' } }),
  ],
  'without the capability': [...stage({}, ['x']), decidedTool(1, missing('files.use'))],
  'an answer to a question': [...stage(), decidedTool(1, { action: 'mcp_response' })],
  'SVIDs by CAs of each kind that vouch': [
    ...SVID,
    by('ca1', 1),
    by('own1', 2),
    note('ca.trusted', { digest: 'ca2', subjects: [BOT] }),
    by('ca2', 3),
    replaced('2999-01-01T00:00:00.000Z'),
    by('own1', 4),
    by('own2', 5),
  ],
  'keys, secrets and servers that rows have bound': [
    ...SVID,
    note('admin.secret_rotated', { secret_sha256: 'a' }),
    note('authority.bound', { secret_sha256: 'a' }),
    note('admin.signing_key_rotated', { kid: 'k2' }),
    note('service.started', { node: '24', names_anchors: true, signing_keys: ['k2', 'k1'] }),
    note('authority.bound', { subject: BOT, trust_bundle: ['own1'], previous_bundles: [] }),
  ],
  'a CA that vouches for an agent, and no more': [
    ...LLM,
    note('authority.trusted_cas', { subject: BOT, trusted_cas: ['ca1'] }),
    note('ca.trusted', { digest: 'ca2', as: 'ca1', subjects: [BOT] }),
    note('ca.distrusted', { digest: 'ca1', subjects: [BOT] }),
    note('ca.detached', { digest: 'ca2', kind: 'spiffe' }),
  ],
  'a candidate set, which decides nothing': [
    ...LLM,
    note('agent.candidate_set', { subject: BOT, candidate: ['x'], since: 'x', previous: null }),
    decided(1, {
      authority: { candidate: { since: 'x', verdict: 'refuse', required_capability: 'llm.chat' } },
    }),
    note('agent.candidate_removed', { subject: BOT, previous: ['x'] }),
    decided(2),
  ],
  'a summary behind a later revision': [...poor, ...patched(15), summary()],
  'a call that a crash ended, and its outcome': [
    ...LLM,
    decided(1),
    { ...decided(1), status: 'unknown', detail: { reason: 'crash' } },
    started,
  ],
}

const CONTRADICT: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'a call without the approval that it needs': [...HELD, decidedTool(1)],
  'the approval of a call that needs none': [...stage(), requested(), given(), byApproval(1)],
  'an approval that no row asked for': [...HELD, byApproval(1)],
  'an approval that nobody gave': [...HELD, requested(), byApproval(1)],
  'an approval by the principal itself': [
    ...[...HELD, requested()],
    given({ principal_id: BOT, principal_type: 'agent' }),
  ],
  'an approval by the person, where an operator is asked for': [
    ...[...ofPerson('operator'), requested(OWN), byPerson(), callOfPerson],
  ],
  'an approval by the person that nobody asked them for': [...ofPerson('person'), requested(), byPerson()],
  'an approval by the person, but not in a session': [
    ...[...ofPerson('person'), requested(OWN), byPerson({ via: 'certificate' })],
  ],
  'an approval of a person’s call by an operator in their place': [
    ...[...ofPerson('person'), requested(OWN), given()],
  ],
  'an approval by an agent of its own call': [
    ...stage({ tool_approvals: { read: 'person' } }),
    ...[
      requested(OWN),
      note('approval.approved', { ...CALL, via: 'oidc' }, { principal_id: BOT, principal_type: 'agent' }),
    ],
    byApproval(1),
  ],
  'an approver of no such name': [...ofPerson('person'), requested({ approver: 'everybody' })],
  'an approval of what was declined': [
    ...[...HELD, requested(), note('approval.declined', CALL, ANN)],
    given(),
  ],
  'an approval that was used before': [...HELD, requested(), given(), byApproval(1), byApproval(2)],
  'a further round of a call that was not made': [
    ...[...HELD, requested(), given()],
    byApproval(1, { continued: true }),
  ],
  'an approval of other arguments': [...HELD, requested(), given(), byApproval(1, { call_digest: 'c2' })],
  'an approval of another principal': [
    ...[...HELD, requested({ subject: 'acme::eve' }), note('approval.approved', CALL, ANN)],
    byApproval(1),
  ],
  'an approval of another definition': [...HELD, requested({ pin: 'd2' }), given(), byApproval(1)],
  'an approval of another revision of the server': [
    ...[...HELD, requested({ resource: { id: 'mcpr_1', revision: 2 } }), given()],
    byApproval(1),
  ],
  'an approval given after its time': [
    ...[...HELD, requested({ expires_at: '2000-01-01T00:00:00.000Z' })],
    given(),
  ],
  'a refused call that names its approval': [
    ...[...HELD, requested(), given()],
    decidedTool(1, { ...refusal('approval_required'), authority: { approval: 'apr_1', call_digest: 'c1' } }),
  ],
  'a refusal for lack of an approval that was not needed': [
    ...stage(),
    decidedTool(1, refusal('approval_required')),
  ],
  'half of an approval': [
    ...HELD,
    requested(),
    given(),
    decidedTool(1, { authority: { approval: 'apr_1' } }),
  ],
  'an approval asked for twice': [...HELD, requested(), requested()],
  'a request that does not say which call': [...HELD, note('approval.requested', { approval: 'apr_1' })],
  'a number in place of a truth of its mode': [
    ...LLM,
    decided(1, { authority: { mode: { egress_dpop_mode: 'optional', no_downgrade: 0 } } }),
  ],
  ...Object.fromEntries(
    FOR_IT.map((scope) => [
      `a call that a stop refuses: ${JSON.stringify(scope)}`,
      [...LLM, stop('begun', scope), decided(1)],
    ]),
  ),
  'a tool’s call that a stop of its server refuses': [
    ...[...stage(), stop('begun', { resource: 'mcpr_1' }), decidedTool(1)],
  ],
  'a call that is said to be stopped': [...LLM, decided(1, stopped())],
  'a call that is said to be stopped by one that has ended': [
    ...[...LLM, stop('begun', 'all'), stop('ended', 'all'), decided(1, stopped())],
  ],
  'a call that is said to be stopped by one for others': [
    ...[...LLM, stop('begun', 'mcp'), decided(1, stopped())],
  ],
  'a call that is said to be stopped by another one': [
    ...[...LLM, stop('begun', 'all'), decided(1, stopped({ stop: 'stp_2' }))],
  ],
  'a call that is said to be stopped by none': [
    ...LLM,
    stop('begun', 'all'),
    decided(1, stopped({ stop: 1 })),
  ],
  'a stop of nothing': [...LLM, stop('begun', 'some')],
  'a stop of two things': [...LLM, stop('begun', { principal: BOT, kind: 'agents' })],
  'a stop that begins twice': [...LLM, stop('begun', 'all'), stop('begun', 'all')],
  'an end of a stop that was not begun': [...LLM, stop('ended', 'all')],
  'an SVID whose row names no CA': [...SVID, decided(1)],
  'an SVID by a CA of somebody else': [...SVID, by('ca2')],
  'an SVID by a CA that vouches no longer': [
    ...SVID,
    note('ca.distrusted', { digest: 'ca1', subjects: [BOT] }),
    by('ca1'),
  ],
  'an SVID by a CA that was detached': [
    ...SVID,
    note('ca.detached', { digest: 'ca1', kind: 'spiffe' }),
    by('ca1'),
  ],
  'an SVID by a bundle whose grace is over': [...SVID, replaced('2020-01-01T00:00:00.000Z'), by('own1')],
  'an SVID by a bundle before an enrollment': [
    ...SVID,
    changed('agent.enrolled_spiffe', 2, {
      ...{ thumbprints: [], spiffe_id: 'spiffe://x/y', trusted_cas: [], trust_bundle: ['own2'] },
    }),
    decided(1, { authority: { revision: 2, anchor: 'own1' } }),
  ],
  'a CA that is no text': [...SVID, decided(1, { authority: { anchor: 5 } })],
  'a bundle that says another state': [
    ...SVID,
    note('authority.bound', { subject: BOT, trust_bundle: ['own9'], previous_bundles: [] }),
  ],
  'a start with a signing key that no row made': [
    ...SVID,
    note('service.started', { node: '24', names_anchors: true, signing_keys: ['k1', 'k2'] }),
  ],
  'an operator secret that no row set': [...SVID, note('authority.bound', { secret_sha256: 'a' })],
  'a server that leads elsewhere than its rows': [
    ...stage({ auth_type: 'none' }),
    note('authority.bound', { resource_id: 'mcpr_1', auth_type: 'bearer' }),
  ],
  'the resource': [...stage(), decidedTool(1, { authority: { resource: { id: 'mcpr_2', revision: 1 } } })],
  'the resource’s revision': [...stage(), resource('updated', 2), decidedTool(1)],
  'the binding': [...stage(), decidedTool(1, { authority: { binding: 'mcpb_2' } })],
  'the approved definition': [...stage(), decidedTool(1, { authority: { pin: 'd2' } })],
  'the tool': [...stage(), decidedTool(1, { tool: 'other.read' })],
  'what was demanded': [...stage(), decidedTool(1, { authority: { demanded: [] } })],
  'a binding that was revoked': [...stage(), binding('revoked'), decidedTool(1)],
  'a tool that is gone': [
    ...stage(),
    resource('updated', 2, { gone: ['read'] }),
    decidedTool(1, { authority: at(2) }),
  ],
  'an agent that was erased': [
    ...stage(),
    changed('agent.erased', 2, { capabilities: ALL }),
    decidedTool(1, { authority: { revision: 2 } }),
  ],
  'a resource that was deleted': [...stage(), resource('deleted', 2), decidedTool(1)],
  'a refusal that nothing asked for': [...stage(), decidedTool(1, missing('files.use'))],
  'a revision left out': [...LLM, changed('agent.deactivated', 3)],
  'a first revision that is not 1': [started, loaded(), changed('agent.created', 2)],
  'a CA that vouches for nobody': [
    ...LLM,
    note('ca.trusted', { digest: 'ca1', subjects: [BOT, 'acme::no'] }),
  ],
  'a CA without a name': [...LLM, note('ca.distrusted', { subjects: [BOT] })],
  'a CA for whom': [...LLM, note('ca.trusted', { digest: 'ca1', subjects: BOT })],
  'the CAs of nobody': [...LLM, note('authority.trusted_cas', { subject: 'acme::no', trusted_cas: [] })],
  'CAs that are none': [...LLM, note('authority.trusted_cas', { subject: BOT, trusted_cas: 'ca1' })],
  'a binding of nobody': [started, loaded(), resource('created', 1), binding('created')],
  'a summary of a revision to come': [...poor, summary({ revision: 2 })],
  'an outcome that nobody allowed': [...LLM, ended(decided(1))],
  'two outcomes': [...LLM, decided(1), ended(decided(1)), ended(decided(1))],
  'a certificate whose time is over': [
    started,
    loaded(),
    changed('agent.created', 1, { thumbprints: [[THUMBPRINT, '2020-01-01T00:00:00.000Z']] }),
    decided(1),
  ],
}

t.test('docs/ledger.md#rule rows that follow do so for both, MCP and LLM', { skip }, async (t) => {
  for (const [name, entries] of Object.entries({ ...FOLLOW, ...PEOPLE_FOLLOW, ...ACCOUNTS_FOLLOW })) {
    const { code, theirs, ours } = judge(entries)
    t.match({ code, theirs }, { code: 0, theirs: { disagree: 0, not_recomputable: {}, at: [] } }, name)
    t.same(theirs, ours, name)
  }
})

t.test('docs/ledger.md#rule rows that do not follow are named by both', { skip }, async (t) => {
  for (const [name, entries] of Object.entries({
    ...CONTRADICT,
    ...PEOPLE_CONTRADICT,
    ...ACCOUNTS_CONTRADICT,
  })) {
    const { code, theirs, ours } = judge(entries)
    t.equal(code, 5, name)
    t.same(theirs.at, [entries.length], name)
    t.same(theirs, ours, name)
  }
  const { code, theirs, ours } = judge([...LLM, decided(1), started])
  t.match({ code, theirs }, { code: 5, theirs: { allowed_without_outcome: 1, at: [4] } })
  t.same(theirs, ours, 'a call that a crash left open')
})

t.test('docs/ledger.md#rule what no row says is counted by why, by both', { skip }, async (t) => {
  const old = decided(1)
  const cases: readonly (readonly [string, readonly LedgerEntry[], (readonly LeafVersion[])?])[] = [
    ['of version 1', [old, ended(old), ...LLM], [1, 1]],
    ['of version 1', [old, ended(old)], [1, 2]],
    ['refused for what no row holds', [...LLM, decided(1, refusal('proof_invalid'))]],
    ['no resource is named', [...LLM, decided(1, { action: 'mcp_request', ...missing('x') })]],
    ['answers that name no tool', [...stage(), decidedTool(1, { action: 'mcp_response', tool: null })]],
    ['summaries of a revision long past', [...poor, ...patched(16), summary()]],
  ]
  for (const [why, entries, versions] of cases) {
    const { code, theirs, ours } = judge(entries, versions)
    t.same([code, theirs.recomputed, Object.keys(theirs.not_recomputable)], [0, 0, [why]], why)
    t.same(theirs, ours, why)
  }
})

t.test(
  'docs/ledger.md#rule a check may refuse with any reason; no other question is asked then',
  { skip },
  (t) => {
    const checks = [{ name: 'policy', digest: 'p', shadow: false }]
    const said = { checks: [{ name: 'policy', digest: 'p', verdict: 'refuse' }] }
    const rows = [started, loaded({ checks }), changed('agent.created', 1)]
    const row = (revision: number, reason: string) =>
      decided(1, { ...refusal(reason, { refused_by: 'policy' }), authority: { ...said, revision } })
    t.match(judge([...rows, row(1, 'capability_missing')]), { code: 0, theirs: { recomputed: 1 } })
    t.match(judge([...rows, ...patched(1), row(1, 'policy_denied')]), { code: 0, theirs: { recomputed: 1 } })
    t.match(judge([...rows, row(2, 'policy_denied')]), { code: 5, theirs: { at: [4] } }, 'nobody made it')
    t.end()
  },
)

t.test('docs/ledger.md#verifying a stream of version 2 has a beginning, for both', { skip }, async (t) => {
  const operator = note('admin.secret_rotated', {}, { principal_id: 'admin', principal_type: 'operator' })
  const renewed = note('agent.certificate_issued', {}, { principal_id: BOT, principal_type: 'agent' })
  /** What both find wrong with the beginnings of these streams, and their exit codes. */
  const found = async (
    streams: Readonly<Record<string, readonly LedgerEntry[]>>,
    versions?: readonly LeafVersion[],
  ) => {
    const rows = Object.entries(streams).flatMap(([stream, entries]) =>
      parsed(exportLines(chainOf(entries, versions))).map((row) => ({ ...row, stream })),
    )
    const input = exportOf(resealed(rows))
    const { status, stdout } = spawnSync('python3', [SCRIPT, '-', '--json'], { input, encoding: 'utf8' })
    const ours = await inspectRows(exportedRows(streamLines(Readable.from([Buffer.from(input)]))), {
      authority: false,
    })
    const theirs: readonly string[] = JSON.parse(stdout).findings ?? []
    t.same([status, theirs], [exitCodeOf(ours), ours.findings])
    return theirs.map((finding) => finding.replace(' does not begin with service.started', ''))
  }
  t.same(await found({ a: [started], b: [operator, started], c: [started, renewed] }), [])
  t.same(await found({ main: [decided(1), started] }, [1, 2]), [])
  t.same(await found({ a: LLM.slice(1), b: LLM, c: [renewed, started] }), ['stream a', 'stream c'])
})

t.test(
  'docs/ledger.md#rule of an SVID whose CA no row says, both say so in that point',
  { skip },
  async (t) => {
    const old = changed('agent.enrolled_spiffe', 1, { thumbprints: [], spiffe_id: 'spiffe://x/y' })
    const why = { 'in one point: SVIDs that chain to a CA which no row says': 1 }
    for (const [name, entries] of Object.entries({
      'a row of before': [started, loaded(), old, decided(1)],
      'an enrollment of before': [...SVID.slice(0, 2), old, by('ca1')],
    })) {
      const { code, theirs, ours } = judge(entries)
      t.match(
        { code, theirs },
        { code: 0, theirs: { recomputed: 1, disagree: 0, not_recomputable: why } },
        name,
      )
      t.same(theirs, ours, name)
    }
    const poor = judge([started, loaded(), old, decided(1, { authority: { demanded: ['x'] } })])
    t.match(poor, { code: 5, theirs: { disagree: 1 } }, 'all other points are judged')
    t.same(poor.theirs, poor.ours)
  },
)
