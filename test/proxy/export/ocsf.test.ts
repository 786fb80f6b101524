import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { OCSF_VERSION } from '../../../proxy/export/ocsf/classes.ts'
import { ocsfEvent } from '../../../proxy/export/ocsf/event.ts'
import { ocsfSchemas } from '../../support/ocsf/validator.ts'

const AT = '2026-01-31T09:30:00.412Z'

const row = (action: string, detail: JsonObject = {}, more: Partial<AuditRow> = {}): AuditRow => ({
  ...{ stream: 'main', seq: 42, recorded_at: AT, request_id: 'req_1', principal_id: 'acme::bot' },
  ...{ principal_type: 'agent', action, status: 'success', tool: null, model: null, provider: null },
  ...{ cert_thumbprint: 'ab'.repeat(32), dpop_jkt: null, config_digest: 'cd'.repeat(32), version: '1.2.3' },
  ...{ prev_hash: '0'.repeat(64), row_hash: 'ef'.repeat(32), detail, ...more },
})

const schemas = ocsfSchemas()

/** The actions that docs/ledger.md lists, each of which test/docs/facts.test.ts finds in the code. */
function everyAction(): readonly string[] {
  const text = readFileSync(join(import.meta.dirname, '../../../docs/ledger.md'), 'utf8')
  const section = text.slice(text.indexOf('<a id="actions">'), text.indexOf('<a id="detail">'))
  const cells = [...section.matchAll(/^\| (`[^|]+) \|/gm)].map(([, cell]) => cell).join(' ')
  const named = [...cells.matchAll(/`((?:<type>|[a-z_]+)\.[a-z_]+)`/g)].map(([, name = '']) => name)
  const kinds = ['agent', 'user', 'workload', 'operator']
  const changes = named.flatMap((name) =>
    name.startsWith('<type>') ? kinds.map((kind) => name.replace('<type>', kind)) : [name],
  )
  const calls = [...section.matchAll(/`(mcp_[A-Za-z_]+)`/g)].map(([, name = '']) => name)
  return [...new Set([...changes, ...calls, 'egress_llm_chat'])].filter((name) => name !== 'mcp_')
}

const VARIED: readonly JsonObject[] = [
  {},
  { reason: 'capability_missing', refused_by: 'capability', http_status: 403, duration_ms: 12 },
  {
    ...{ subject: 'acme::bot', subject_type: 'agent', capabilities: ['llm.chat'], previous: ['a.b'] },
    ...{ resource: 'res_1', tool: 'read', sink: 'lake', file: '0-511.zip', limit: { id: 'lim_1' } },
  },
  { summarised: { count: 7, digest: 'ab', since: AT, until: AT }, reason: 'proof_required' },
  { content: { verdict: 'refuse', findings: [] }, reason: 'content_refused' },
]

t.equal(schemas.version, OCSF_VERSION)

t.test('docs/exports.md#ocsf: the events of every action validate against the published schema', (t) => {
  const actions = everyAction()
  t.ok(actions.length > 100, `${actions.length} actions`)
  for (const action of actions) {
    const faults = VARIED.flatMap((detail) =>
      ['allowed', 'denied', 'invalid', 'success', 'error', 'truncated', 'unknown'].flatMap((status) =>
        [
          row(action, detail, { status }),
          row(action, detail, { status, principal_id: null, principal_type: null, request_id: null }),
          row(action, detail, { status, tool: 'files.read', model: 'gpt-5', provider: 'openai' }),
          row(action, detail, { status, principal_type: 'user', cert_thumbprint: null, dpop_jkt: 'k' }),
        ].flatMap((one) => schemas.faults(ocsfEvent(one))),
      ),
    )
    t.same([...new Set(faults)].slice(0, 3), [], action)
  }
  t.end()
})

t.test('the validator refuses members that the schema does not have, and required ones that lack', (t) => {
  const event = ocsfEvent(row('egress_llm_chat'))
  t.same(schemas.faults(event), [])
  t.not(schemas.faults({ ...event, flavour: 'x' }).length, 0)
  const { api: _api, ...without } = event
  t.not(schemas.faults(without).length, 0)
  t.not(schemas.faults({ ...event, severity_id: 7 }).length, 0)
  t.not(schemas.faults({ ...event, class_uid: 6_005 }).length, 0)
  t.end()
})

t.test('an event names its row by stream, seq and hash, and says all that the row says', (t) => {
  const said = row('egress_llm_chat', { body_bytes: 12 }, { status: 'allowed', model: 'gpt-5' })
  const event = ocsfEvent(said)
  t.match(event, {
    ...{ class_uid: 6_003, activity_id: 99, activity_name: 'Invoke', type_uid: 600_399 },
    metadata: {
      ...{ uid: 'main:42', original_event_uid: 'ef'.repeat(32), correlation_uid: 'req_1' },
      profiles: ['ai_operation', 'security_control'],
    },
    time: Date.parse(AT),
    api: { operation: 'chat', request: { uid: 'req_1' } },
    ai_model: { name: 'gpt-5', ai_provider: 'unknown' },
    ai_agent: { uid: 'acme::bot' },
    actor: { user: { uid: 'acme::bot', type_id: 4 } },
    src_endpoint: { uid: 'ab'.repeat(32) },
    ...{ action_id: 1, status_id: 1 },
    unmapped: { detail: { body_bytes: 12 } },
  })
  t.end()
})

t.test('docs/exports.md#ocsf: each kind of row has its class', (t) => {
  const classOf = (action: string, detail: JsonObject = {}) => ocsfEvent(row(action, detail)).class_uid
  t.equal(classOf('admin.sign_in'), 3_002)
  t.equal(classOf('grant.issued'), 3_002)
  t.equal(classOf('agent.created'), 3_001)
  t.equal(classOf('agent.capabilities_patched'), 3_005)
  t.equal(classOf('mcp_binding.created'), 3_005)
  t.equal(classOf('mcp_resource.created'), 3_004)
  t.equal(classOf('ca.attached'), 3_004)
  t.equal(classOf('mcp_resource.tool_quarantined'), 2_004)
  t.equal(classOf('mcp_tools_call', { content: { verdict: 'refuse' } }), 2_004)
  t.equal(classOf('mcp_tools_call', { content: { verdict: 'pass' } }), 6_003)
  t.equal(classOf('service.started'), 6_002)
  t.equal(classOf('config.rejected'), 6_002)
  t.end()
})

t.test('a denied call is blocked, with its reason and its tool', (t) => {
  const denied = { status: 'denied', tool: 'files.delete', principal_type: 'user', cert_thumbprint: null }
  const event = ocsfEvent(
    row(
      'mcp_tools_call',
      { reason: 'capability_missing', grant: 'gnt_1' },
      { ...denied, principal_id: 'usr_a' },
    ),
  )
  t.match(event, {
    ...{ action_id: 2, action: 'Denied', disposition_id: 2, status_id: 2, status_code: 'denied' },
    ...{ status_detail: 'capability_missing', api: { operation: 'tools/call' } },
    resources: [{ name: 'files.delete', type: 'tool' }],
    ...{ src_endpoint: { uid: 'gnt_1' }, actor: { user: { uid: 'usr_a', type_id: 1 } } },
  })
  t.notOk('ai_agent' in event, 'a person is no agent')
  t.end()
})

t.test('capabilities that are given or taken are told apart, with the new list and the old one', (t) => {
  const change = (capabilities: string[], previous: string[]) =>
    ocsfEvent(row('agent.capabilities_patched', { subject: 'acme::a', capabilities, previous }))
  t.match(change(['a.b', 'c.d'], ['a.b']), {
    ...{ activity_id: 1, privileges: ['a.b', 'c.d'], user: { uid: 'acme::a' } },
    unmapped: { detail: { previous: ['a.b'] } },
  })
  t.match(change(['a.b'], ['a.b', 'c.d']), { activity_id: 2 })
  t.end()
})
