import t from 'tap'
import { LeafRow } from '../../../../db/ledger/canonical/leaf-row.ts'
import type { LedgerEntry } from '../../../../db/ledger/record/entry.ts'
import { exportedPages } from '../../../../db/ledger/verify/export.ts'
import { type RecomputationReport, recomputer } from '../../../../db/ledger/verify/recompute.ts'
import {
  binding,
  chainOf,
  changed,
  decided,
  decidedTool,
  ended,
  exportOf,
  JKT,
  loaded,
  note,
  recomputed,
  resource,
  started,
  THUMBPRINT,
} from '../../../support/db/history.ts'
import { AT } from '../../../support/db/scratch-ledger.ts'

/** Recomputes an export, in which decisions that have agreed are not judged again. */
async function recomputedFromExport(entries: readonly LedgerEntry[]): Promise<RecomputationReport> {
  const walk = recomputer()
  const blocks = (async function* () {
    yield Buffer.from(exportOf(chainOf(entries)))
  })()
  for await (const page of exportedPages(blocks))
    for (const row of page) {
      if (!(row instanceof LeafRow)) throw new Error('a row was not read from its bytes')
      walk.add(row)
    }
  return walk.result()
}

const TOOLS = ['files.use', 'llm.chat']
const SET = { capabilities: TOOLS, dpop_jkts: [] }
const BEFORE = [
  started,
  loaded(),
  changed('agent.created', 1, SET),
  resource('created', 1, { pinned: [['read', 'd1']] }),
  binding('created'),
]

let calls = 0
type CallValues = Parameters<typeof decided>[1]
const chat = (values: CallValues = {}): LedgerEntry => decided(++calls, values)
const tool = (values: CallValues = {}): LedgerEntry => decidedTool(++calls, values)
const agreed = (call: LedgerEntry): readonly LedgerEntry[] => [call, ended(call)]
const twice = (make: typeof chat): readonly LedgerEntry[] => [...agreed(make()), ...agreed(make())]

/** A call behind two that have agreed, and differs from them in one thing. */
const OTHERS: Readonly<Record<string, LedgerEntry>> = {
  'another principal': chat({ principal_id: 'acme::other' }),
  'another type of principal': chat({ principal_type: 'user' }),
  nobody: chat({ principal_id: null }),
  'another certificate': chat({ cert_thumbprint: 'cd'.repeat(32) }),
  'no certificate': chat({ cert_thumbprint: null }),
  'a certificate named null': chat({ cert_thumbprint: 'null' }),
  'a key': chat({ dpop_jkt: JKT }),
  'another configuration': chat({ config_digest: '99'.repeat(32) }),
  'another action': chat({ action: 'mcp_tools_list' }),
  'another path': chat({ more: { path: '/v1/mcp/files' } }),
  'another demand': chat({ authority: { demanded: ['files.use'] } }),
  'another mode': chat({ authority: { mode: { egress_dpop_mode: 'off', no_downgrade: false } } }),
  'another revision': chat({ authority: { revision: 2 } }),
  'a scope without it': chat({ authority: { scope: ['files.use'] } }),
  'a bound token': chat({ authority: { token: true } }),
  'a grant': chat({ authority: { grant: 'gr_1', bound: 'key' } }),
  'a check of no configuration': chat({
    authority: { checks: [{ name: 'x', digest: null, verdict: 'pass' }] },
  }),
  'a reason': chat({ more: { reason: 'capability_missing' } }),
  'a summary': chat({ more: { summarised: { count: 3 } } }),
  limits: chat({ more: { limits: [{ id: 'lim_1' }] } }),
  'no request': chat({ request_id: null }),
  'the words in another place': chat({
    more: { authority: {}, session: { authority: { demanded: ['llm.chat'] } } },
  }),
  'another tool': tool({ tool: 'files.write' }),
  'another pin': tool({ authority: { pin: 'd2' } }),
  'another binding': tool({ authority: { binding: 'mcpb_2' } }),
  'an approval': tool({ authority: { approval: 'apr_1', call_digest: 'aa'.repeat(32) } }),
}

for (const [what, call] of Object.entries(OTHERS))
  t.test(`a decision that is like those before it but for ${what} is judged by itself`, async (t) => {
    const entries = [...BEFORE, ...twice(chat), ...twice(tool), ...agreed(call), ...twice(chat)]
    const expected = recomputed(chainOf(entries))
    t.same(await recomputedFromExport(entries), expected)
  })

/** A change behind which the same words are another decision. */
const CHANGES: Readonly<Record<string, readonly LedgerEntry[]>> = {
  'what it holds': [changed('agent.capabilities_patched', 2, { ...SET, capabilities: [] })],
  'who is active': [changed('agent.deactivated', 2, { ...SET, is_active: false })],
  'its certificate': [changed('agent.certificate_issued', 2, { ...SET, thumbprints: [] })],
  'its resource': [resource('updated', 2, { enabled: false })],
  'its binding': [binding('revoked')],
  'its tool': [resource('tool_quarantined', 2, { quarantined: [['read', 'd2']] })],
  'a stop': [note('stop.begun', { stop: 'stop_1', scope: 'all', reason: 'test' })],
  'the configuration': [loaded({ egress_dpop_mode: 'required' })],
}

for (const [what, change] of Object.entries(CHANGES))
  t.test(`the same words are judged again behind a row that changes ${what}`, async (t) => {
    const entries = [...BEFORE, ...twice(chat), ...twice(tool), ...change, ...twice(chat), ...twice(tool)]
    const expected = recomputed(chainOf(entries))
    t.ok(expected.disagree > 0)
    t.same(await recomputedFromExport(entries), expected)
  })

t.test('a certificate that is honoured for a while is looked at in each call', async (t) => {
  const until = new Date(AT + 60_000).toISOString()
  const timed = { ...SET, thumbprints: [[THUMBPRINT, until]] }
  const entries = [
    ...[started, loaded(), changed('agent.created', 1, timed)],
    ...[...twice(chat), ...agreed(chat({ at: AT + 59_999 })), ...agreed(chat({ at: AT + 60_000 }))],
  ]
  const found = await recomputedFromExport(entries)
  t.same(found, recomputed(chainOf(entries)))
  t.equal(found.disagree, 1)
})

t.test('as many decisions are counted as there are', async (t) => {
  const found = await recomputedFromExport([
    ...BEFORE,
    ...Array.from({ length: 50 }, () => twice(chat)).flat(),
  ])
  t.equal(found.recomputed, 100)
  t.equal(found.disagree, 0)
})
