import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { openMcp } from '../../proxy/mcp/mcp.ts'
import { recordFiveDays } from '../support/archive.ts'
import { endPresence } from '../support/db/postgres/replica.ts'
import { twoStages } from '../support/db/postgres/stages.ts'
import { VERSION } from '../support/db/scratch-ledger.ts'
import { answering, receiver } from '../support/federation.ts'
import type { Stage } from '../support/mcp/stage.ts'
import { eventually } from '../support/settled.ts'

/** A little more than proxy/federation/publish.ts has. ms. */
const ROUND_MS = 2_500

t.test('one replica pushes to the federation, and another one goes on when it is gone', async (t) => {
  const hub = await receiver(t)
  // Longer than a round: another replica would find the revision not pushed yet, and push it too.
  hub.answer = async (_received, response) => {
    await sleep(ROUND_MS)
    response.writeHead(204).end()
  }
  const { url, one, other } = await twoStages(t, { settings: { MCP_PROXY_FEDERATION_URL: hub.url } })
  const { agent_id: id } = (
    await one.admin('POST', '/v1/admin/agents', { agent_name: 'bot', federated: true })
  ).json
  const grant = (stage: Stage, n: number) =>
    stage.admin('PATCH', `/v1/admin/agents/${id}/capabilities`, { capabilities: [`tool.n${n}`] })
  const pushed = (revision: number) =>
    eventually(
      () => hub.labels(),
      (labels) => labels.includes(`bot@${revision}`),
    )
  const { federation_revision: first } = (await one.admin('GET', `/v1/admin/agents/${id}`)).json
  await pushed(first)
  await grant(one, 1)
  await pushed(first + 1)
  // The second one is still under way.
  hub.answer = answering(204)
  await grant(one, 2)
  await pushed(first + 2)
  t.same(hub.labels(), [`bot@${first}`, `bot@${first + 1}`, `bot@${first + 2}`], 'each once, in order')

  // Whoever led it leads it no more, and somebody does again.
  await endPresence(url)
  await grant(other, 3)
  await pushed(first + 3)
  await one.close(0)
  await grant(other, 4)
  t.equal((await pushed(first + 4)).at(-1), `bot@${first + 4}`)
  const revisions = hub.received.map(({ label }) => Number(label.split('@')[1]))
  t.same(
    revisions,
    revisions.toSorted((a, b) => a - b),
    'no revision after a higher one',
  )
})

t.test('whichever replica is asked to archive, the one that leads does it', async (t) => {
  const folder = join(t.testdir({ archive: {} }), 'archive')
  const yaml = `plugin: archive\nkeep: 2d\nto: ${folder}\nat: "23:59"\n`
  const { url, one, other } = await twoStages(t, { verify: false, files: { '90-archive.yaml': yaml } })
  await recordFiveDays(url)
  const plan = () => one.admin('POST', '/v1/admin/archive?dry_run=true', {})
  await eventually(plan, ({ json }) => json.segments === 3)
  for (const [asked, span, segments] of [
    [one, '4d', 1],
    [other, '2d', 2],
  ] as const) {
    const { json } = await asked.admin('POST', '/v1/admin/archive', { older_than: span })
    const { last } = await eventually(
      async () => (await one.admin('GET', '/v1/admin/archive')).json,
      (shown) => shown.last?.id === json.asked,
    )
    t.match(last, { segments, problem: null })
  }
})

t.test('what an MCP server announces to one replica is known to the one that reads for all', async (t) => {
  const { url } = await twoStages(t)
  const open = async () => {
    const database = await openDatabase(url)
    const ledger = await openLedger({ database, version: VERSION })
    const mcp = openMcp({
      database,
      ledger,
      upstreamSecret: () => Promise.reject(new Error('there is none')),
      allowPrivate: true,
      secret: Buffer.alloc(32),
      clock: Date.now,
    })
    t.teardown(async () => {
      await mcp.close()
      await ledger.close()
      await database.close()
    })
    await eventually(
      () => database.notices.listening,
      (is) => is,
    )
    return mcp
  }
  const [one, other] = [await open(), await open()]
  one.announce('mcp_1')
  await eventually(
    () => other.changed.size,
    (size) => size > 0,
  )
  t.same([...other.changed], ['mcp_1'])
  t.same([...one.changed], ['mcp_1'])
})
