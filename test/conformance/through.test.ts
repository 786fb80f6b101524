import t from 'tap'
import { META_KEYS, MODERN_VERSION } from '../../proxy/mcp/protocol/versions.ts'
import type { Json } from '../support/gateway.ts'
import { ALL, difference, gate, REVISIONS } from '../support/mcp/gate.ts'
import { scoredScenarios } from '../support/mcp/suite.ts'

const [DONE, WARNED, SKIPPED, NOTHING] = [['SUCCESS'], ['WARNING'], ['SKIPPED'], []]

/**
 * All that the gateway says otherwise than the server behind it, as the server's statuses and the gateway's.
 */
const KNOWN: Readonly<Record<string, Json>> = {
  '2025-11-25': {
    // tools/list comes out of the pins and as JSON, where the server streams: the suite takes note of it
    // (INFO) and no more.
    'server-sse-multiple-streams': { 'server-sse-streams-functional': [DONE, NOTHING] },
    // Not scored: streams that are taken up again by GET. There is no such stream here.
    'server-sse-polling': {
      'server-sse-priming-event': [DONE, WARNED],
      'server-sse-retry-field': [DONE, WARNED],
      'server-sse-disconnect-resume': [DONE, NOTHING],
    },
  },
  '2026-07-28': {
    // subscriptions/listen is not offered, and not asked for where it is not offered.
    'server-stateless': {
      'sep-2575-server-sends-subscription-ack': [DONE, SKIPPED],
      'sep-2575-server-tags-subscription-id': [DONE, SKIPPED],
      'sep-2575-server-honors-notification-filter': [DONE, SKIPPED],
      'sep-2575-server-sends-prompts-list-changed-on-subscription': [DONE, SKIPPED],
      'sep-2575-server-sends-tools-list-changed-on-subscription': [DONE, SKIPPED],
    },
    // Not scored: it calls the first tool of the list without arguments, and the first by name demands some.
    // See below.
    'http-header-validation': { 'sep-2243-server-accepts-whitespace-header-value': [DONE, ['FAILURE']] },
  },
}

/** Scenarios that name no tool and no prompt, which are called otherwise at the aggregate door. */
const NAMELESS: Readonly<Record<string, readonly string[]>> = {
  '2025-11-25': [
    ...['server-initialize', 'ping', 'dns-rebinding-protection', 'server-session-lifecycle'],
    ...['logging-set-level', 'tools-list', 'prompts-list', 'resources-list', 'resources-read-text'],
    ...['resources-read-binary', 'resources-templates-read', 'resources-subscribe', 'resources-unsubscribe'],
  ],
  '2026-07-28': [
    ...['dns-rebinding-protection', 'caching', 'tools-list', 'server-sse-multiple-streams', 'prompts-list'],
    ...['resources-list', 'resources-read-text', 'resources-read-binary', 'resources-templates-read'],
    ...['sep-2164-resource-not-found', 'http-custom-header-server-validation'],
    ...['input-required-result-unsupported-methods', 'tasks-capability-negotiation'],
  ],
}

for (const revision of REVISIONS) {
  await t.test(`${revision} through the gateway as at the server itself`, async (t) => {
    const { direct, through, behind, read } = await gate(t, revision, ALL)
    const [alone, gated] = await Promise.all([direct(), through('/v1/mcp/everything')])

    await t.test('at the scoped door every scenario ends as it does there', async (t) => {
      t.same(difference(alone, gated), KNOWN[revision])
      for (const scenario of await scoredScenarios(revision)) {
        t.equal(gated.get(scenario)?.failed, 0, `${scenario}: the suite is content`)
        t.equal(alone.get(scenario)?.failed, 0, scenario)
      }
      t.ok(behind.requests.length > read + 20, 'what was answered came from the server')
    })

    await t.test('at the aggregate door those do that name nothing', async (t) => {
      const other = difference(alone, await through('/v1/mcp'))
      for (const scenario of NAMELESS[revision] ?? []) t.same(other[scenario], undefined, scenario)
      t.notSame(other['tools-call-simple-text'], undefined, 'unlike those that do')
    })
  })
}

await t.test('RFC 9110 §5.5 Mcp-Name is compared without the space around it', async (t) => {
  const { stage, bot } = await gate(t, '2026-07-28', ALL)
  const name = 'json_schema_2020_12_tool'
  const at = '/everything'
  const options = { at, modern: true, headers: { 'mcp-name': `  ${name}  ` } }
  const { json } = await stage.callTool(bot, name, { contactMethod: 'email', email: 'a@b.c' }, options)
  t.match(json.result, { content: [{ type: 'text' }], resultType: 'complete' })
})

await t.test(
  '2026-07-28 a version that is not spoken is answered with those of server/discover',
  async (t) => {
    const { stage, bot } = await gate(t, '2026-07-28', [])
    const said = (await stage.rpc(bot, 'server/discover', { modern: true })).json.result.supportedVersions
    t.same(said, [MODERN_VERSION])
    const version = '2099-01-01'
    const { status, json } = await stage.rpc(bot, 'server/discover', {
      modern: true,
      params: { _meta: { [META_KEYS.version]: version } },
      headers: { 'mcp-protocol-version': version },
    })
    t.equal(status, 400)
    t.match(json.error, { code: -32022, data: { supported: said, requested: version } })
    const older = await stage.rpc(bot, 'ping', { headers: { 'mcp-protocol-version': version } })
    t.match(
      older.json.error.data.supported,
      [MODERN_VERSION, '2025-11-25'],
      'all of them where none says which form',
    )
  },
)
