import t, { type Test } from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import type { HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import { walkOnThread } from '../../../db/rehearsal/thread.ts'
import { ALL, changes } from '../../support/db/rehearsal.ts'
import { CHAT, type TestGateway, testGateway } from '../../support/gateway.ts'
import { request } from '../../support/mcp/stage.ts'

const NEVER = new AbortController().signal

const rehearse = (
  { settings }: TestGateway,
  told: HypotheticalChanges,
  principals: readonly string[] | null,
  signal: AbortSignal = NEVER,
) =>
  walkOnThread(
    databaseLocation(settings.databaseUrl),
    { kind: 'rehearse', changes: told, wanted: { ...ALL, principals } },
    signal,
  )

async function lived(t: Test): Promise<TestGateway> {
  const gateway = await testGateway(t)
  const [bot, guest] = [await gateway.enroll('bot', ['llm.chat']), await gateway.enroll('guest', [])]
  for (const who of [bot, guest, bot, bot])
    await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  return gateway
}

await t.test('docs/rehearsal.md#rule: the same over all rows and by the indexes, on a thread', async (t) => {
  const gateway = await lived(t)
  const told = changes({ subject: 'acme::bot', capabilities: ['x'] })
  const [all, about] = [await rehearse(gateway, told, null), await rehearse(gateway, told, ['acme::bot'])]
  t.match(all, { decisions: 4, principals: 2, unchanged: 1, disagreements: 0, undecidable: [] })
  t.match(about, { decisions: 3, principals: 1, unchanged: 0, disagreements: 0, undecidable: [] })
  t.match(all.newlyRefused, {
    decisions: 3,
    groups: [{ principal_id: 'acme::bot', action: 'egress_llm_chat', capability: 'llm.chat', decisions: 3 }],
  })
  t.same(about.newlyRefused, all.newlyRefused)
  const granted = changes({ subject: 'acme::guest', capabilities: ['llm.chat'] })
  t.match((await rehearse(gateway, granted, ['acme::guest'])).newlyAllowed, { decisions: 1 })
  t.match(await rehearse(gateway, changes({}), null), { decisions: 4, unchanged: 4, disagreements: 0 })
})

await t.test(
  'docs/rehearsal.md#window: what others have called is not counted, however rare it is',
  async (t) => {
    const gateway = await lived(t)
    const other = await gateway.enroll('other', ['mcp.prompts.get'])
    await gateway.call(other, 'POST', '/v1/mcp', request('prompts/list', {}))
    const told = changes({ subject: 'acme::bot', capabilities: ['x'] })
    t.match(await rehearse(gateway, told, null), { decisions: 5, principals: 3 })
    t.match(await rehearse(gateway, told, ['acme::bot']), { decisions: 3, principals: 1 })
    t.match(await rehearse(gateway, told, ['acme::other']), { decisions: 1, principals: 1, unchanged: 1 })
  },
)

await t.test('a rehearsal that nobody waits for ends, and what cannot be read is an error', async (t) => {
  const gateway = await lived(t)
  const gone = new AbortController()
  const asked = rehearse(gateway, changes({}), null, gone.signal)
  gone.abort(new Error('the caller has left'))
  await t.rejects(asked, { message: 'the caller has left' })
  const task = { kind: 'rehearse', changes: changes({}), wanted: { ...ALL, principals: null } } as const
  await t.rejects(walkOnThread(databaseLocation('sqlite:/nowhere/at/all.db'), task, NEVER))
})
