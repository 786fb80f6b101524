import t, { type Test } from 'tap'
import type { AuditRow } from '../../db/ledger/read/read.ts'
import type { Json } from '../support/gateway.ts'
import { gate, REVISIONS } from '../support/mcp/gate.ts'
import type { Revision } from '../support/mcp/suite.ts'

/** Scenarios that ask for nothing that a capability stands before: about the connection alone. */
const OPEN: Readonly<Record<string, readonly string[]>> = {
  '2025-11-25': ['server-initialize', 'ping', 'dns-rebinding-protection', 'server-session-lifecycle'],
  '2026-07-28': ['dns-rebinding-protection'],
}

/** Scenarios that ask for something and are content with any answer, or with any error. */
const CONTENT: Readonly<Record<string, readonly string[]>> = {
  '2025-11-25': ['server-sse-multiple-streams', 'server-sse-polling'],
  '2026-07-28': [
    ...['server-sse-multiple-streams', 'input-required-result-unsupported-methods'],
    'input-required-result-validate-input',
  ],
}

/** Why a message is refused before anybody asks what its sender may do. */
const UNREAD = new Set<unknown>([
  ...['mcp_meta_invalid', 'mcp_version_unsupported', 'mcp_header_mismatch', 'mcp_method_unknown'],
  ...['mcp_session_unknown', 'origin_not_allowed'],
])

for (const revision of REVISIONS) {
  await t.test(
    `§1 with an empty set every scenario of ${revision} is refused -32005, and nothing goes upstream`,
    async (t) => {
      const { rows, exists } = await denied(t, revision, '/v1/mcp/everything')
      const others = rows.filter(({ detail }) => detail.reason !== 'capability_missing')
      for (const { tool, detail } of others) {
        t.equal(detail.reason, 'mcp_tool_unknown', String(tool))
        t.notOk(exists.has(`everything.${tool}`), `${tool} does not exist`)
      }
      t.ok(rows.length - others.length > 25, 'the rest, for what it does not hold')
    },
  )

  await t.test(`§1 nor at the aggregate door, where most names of ${revision} mean nothing`, async (t) => {
    const { rows } = await denied(t, revision, '/v1/mcp')
    const reasons = new Set(rows.map(({ detail }) => detail.reason))
    t.same(reasons, new Set(['capability_missing', 'mcp_tool_unknown', 'mcp_params_invalid']))
  })
}

interface Denied {
  /** The decisions on what could be read. */
  readonly rows: readonly AuditRow[]
  /** The tools that exist, as `<resource>.<tool>`. */
  readonly exists: ReadonlySet<string>
}

/**
 * Runs the suite with nothing granted; the test has failed where anything reached the server, or was granted.
 */
async function denied(t: Test, revision: Revision, door: '/v1/mcp' | '/v1/mcp/everything'): Promise<Denied> {
  const { stage, behind, read, through } = await gate(t, revision, [])
  const verdicts = await through(door)
  t.equal(behind.requests.length, read, 'the server heard of none of it')
  const content = [...verdicts].filter(([, { faults }]) => faults.length === 0).map(([scenario]) => scenario)
  t.same(content.sort(), [...(OPEN[revision] ?? []), ...(CONTENT[revision] ?? [])].sort())
  const [everything] = (await stage.admin('GET', '/v1/admin/mcp-resources')).json
  const { tools } = await stage.resource(everything)
  await stage.close()
  const decisions = (await stage.rows()).filter(({ principal_id: id }) => id === 'acme::bot')
  const statuses = new Set(decisions.map(({ status }) => status))
  t.same(statuses.difference(new Set(['denied', 'invalid'])), new Set(), 'nothing was granted')
  return {
    rows: decisions.filter(({ detail }) => !UNREAD.has(detail.reason)),
    exists: new Set(tools.map((tool: Json) => tool.exposed_as)),
  }
}
