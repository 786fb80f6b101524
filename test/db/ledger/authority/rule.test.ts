import t from 'tap'
import {
  certificateHolds,
  demandedOfBuiltIn,
  demandedOfTool,
  missingCapability,
  proofFault,
  thumbprintsAt,
} from '../../../../db/ledger/authority/rule.ts'

const AT = Date.UTC(2026, 0, 2)
const LATER = new Date(AT + 1).toISOString()
const NOW = new Date(AT).toISOString()

t.test(
  'docs/ledger.md#rule: a tool demands its own capability, else its resource’s, else none',
  async (t) => {
    t.same(demandedOfTool('read', 'files.use', { read: 'files.read' }, false), ['files.read'])
    t.same(demandedOfTool('write', 'files.use', { read: 'files.read' }, false), ['files.use'])
    t.same(demandedOfTool('write', null, {}, false), [])
    t.same(demandedOfTool('constructor', 'files.use', {}, false), ['files.use'])
  },
)

t.test(
  'docs/ledger.md#rule: enforce_tools_call demands mcp.tools.call after the tool’s own, once',
  async (t) => {
    t.same(demandedOfTool('read', 'files.use', {}, true), ['files.use', 'mcp.tools.call'])
    t.same(demandedOfTool('read', null, {}, true), ['mcp.tools.call'])
    t.same(demandedOfTool('read', 'mcp.tools.call', {}, true), ['mcp.tools.call'])
    t.same(
      [demandedOfBuiltIn(false), demandedOfBuiltIn(true)],
      [['http.get'], ['http.get', 'mcp.tools.call']],
    )
  },
)

t.test('§1 what is demanded must be held within the scope; an empty set opens nothing', async (t) => {
  t.equal(missingCapability(['a', 'b'], ['b', 'a'], null), null)
  t.equal(missingCapability(['a', 'b', 'c'], ['a'], null), 'b')
  t.equal(missingCapability(['a', 'b'], ['a', 'b'], ['a']), 'b')
  t.equal(missingCapability(['a'], ['b'], ['a']), 'a', 'a scope never widens')
  t.equal(missingCapability([], ['x'], null), null)
  t.equal(missingCapability([], [], null), 'mcp.tools.call')
  t.equal(missingCapability([], ['x'], ['y']), 'mcp.tools.call')
})

t.test('§5.2 a certificate is pinned and in its time, or its SPIFFE id speaks for it', async (t) => {
  const pins = [
    ['new', null],
    ['old', LATER],
    ['over', NOW],
  ] as const
  const holds = (name: string, bySpiffeId = false) => certificateHolds(name, pins, bySpiffeId, AT)
  t.same([holds('new'), holds('old'), holds('over'), holds('other')], [true, true, false, false])
  t.same([holds('other', true), holds('over', true)], [true, false])
  t.same(thumbprintsAt(pins, AT), ['new', 'old'])
})

t.test(
  '§5.2 what each mode demands of the proof, with and without a key, a token, no_downgrade',
  async (t) => {
    const keys = ['k']
    for (const jkt of [null, 'k', 'x']) t.equal(proofFault('off', true, jkt, keys, false), null)
    t.equal(proofFault('optional', false, null, keys, false), null)
    t.equal(proofFault('optional', true, null, keys, false), 'proof_required')
    t.equal(proofFault('optional', true, null, [], false), null)
    t.equal(proofFault('optional', false, 'x', keys, false), 'proof_invalid')
    t.equal(proofFault('optional', false, 'x', [], false), null)
    t.equal(proofFault('optional', false, 'x', keys, true), null)
    t.equal(proofFault('optional', true, 'x', keys, true), 'proof_invalid')
    t.equal(proofFault('optional', false, null, [], true), 'proof_required')
    t.equal(proofFault('required', false, null, keys, false), 'proof_required')
    t.equal(proofFault('required', false, 'x', [], false), 'proof_required')
    t.equal(proofFault('required', false, 'x', [], true), null)
    t.equal(proofFault('required', false, 'k', keys, false), null)
    t.equal(proofFault('required', true, 'x', keys, true), 'proof_invalid')
  },
)
