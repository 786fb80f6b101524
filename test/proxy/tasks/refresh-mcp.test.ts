import { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { findMcpResource, insertMcpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { type InspectUpstream, inspector } from '../../../proxy/mcp/pinning/inspect.ts'
import { refreshMcp } from '../../../proxy/tasks/refresh-mcp.ts'
import { databaseUrl } from '../../support/db/engine.ts'
import { leading } from '../../support/db/leading.ts'
import { AT, fieldsOf } from '../../support/db/mcp-rows.ts'
import type { Json } from '../../support/gateway.ts'
import { upstreamFor } from '../../support/mcp/raw-upstream.ts'
import { legacyWith, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

type Test = Parameters<typeof toolServer>[0]

const INTERVAL_S = 300

/**
 * The task on a database of its own, with a clock that a test moves. `inspect`: in place of asking real
 * servers.
 */
async function stage(t: Test, inspect?: InspectUpstream) {
  const database = await openDatabase(await databaseUrl(t.testdir()))
  await leading(database, 'refresh-mcp')
  const ledger = await openLedger({ database, version: '0' })
  const log: Json[] = []
  const logTo = new Writable({
    write(chunk: Buffer, _encoding, done) {
      log.push(JSON.parse(chunk.toString()))
      done()
    },
  })
  let at = AT
  const upstream = upstreamFor(t)
  const task = refreshMcp({
    database,
    ledger,
    configDigest: () => 'c',
    inspect: () => inspect ?? inspector(database, upstream, () => at),
    intervalS: () => INTERVAL_S,
    changed: new Set(),
    clock: () => at,
    log: pino(logTo),
  })
  t.teardown(async () => {
    await task.stop()
    await ledger.close()
    await database.close()
  })
  return {
    task,
    log,
    register: async (name: string, url: string): Promise<void> => {
      const fields = { ...fieldsOf(name), resource_id: `mcpr_${name}`, endpoint_url: url }
      await ledger.commit({ statements: [insertMcpResource(database, fields)], entries: [] })
    },
    later: (ms = INTERVAL_S * 1000): Promise<void> => {
      at += ms
      return task.run()
    },
    toolsOf: (name: string) => listMcpTools(database, `mcpr_${name}`),
    resource: (name: string) => findMcpResource(database, `mcpr_${name}`),
    passed: () => at - AT,
  }
}

await t.test(
  'threat 17: a silent server beside a changed one does not keep the change from being seen, round after round',
  async (t) => {
    const { task, log, register, later, toolsOf, resource } = await stage(t)
    const [silent, changing] = [await toolServer(t, [tool('go')]), await toolServer(t, [tool('read')])]
    await register('a', silent.url)
    await register('b', changing.url)
    await task.run()
    await eventually(
      async () => [await toolsOf('a'), await toolsOf('b')],
      (all) => all.every((tools) => tools.length === 1),
    )
    silent.act = () => {}
    const before = silent.told.length
    const pending = async (description: string) => {
      const last = (await toolsOf('b'))[0]?.pending_digest
      changing.act = legacyWith([tool('read', { description })])
      // Round after round: a row is seen before the task has done with its server, which then misses a round.
      const readLater = () => later().then(() => toolsOf('b'))
      const [read] = await eventually(readLater, ([found]) => found?.pending_digest !== last)
      t.equal(read?.state, 'quarantined')
      t.not(read?.pending_digest, last)
    }
    await pending('Changed.')
    await pending('Changed again.')
    const asked = await eventually(
      () => silent.told.length,
      (count) => count > before,
    )
    t.equal(asked, before + 1, 'it hangs all the while, and is asked no second time')
    // Only then has all been said that is to be said of what was read.
    await task.stop()
    const told = log.filter(({ tool: of }) => of === 'read')
    t.match(told, [
      { level: 40, resource: 'b', tool: 'read' },
      { level: 40, resource: 'b', tool: 'read' },
    ])
    t.equal(told.length, 2, 'one line for each quarantine')
    t.match(await resource('a'), { last_error: null }, 'that we stop is no fault of the server')
    await later()
    t.equal(silent.told.length, before + 1, 'nothing begins any more')
  },
)

await t.test(
  'a server that is away is one warning, is asked ever more rarely, and one line when it is back',
  async (t) => {
    const asked: number[] = []
    let isDown = true
    const { log, register, later, task, resource, passed } = await stage(t, async () => {
      asked.push(passed())
      const facts = { skipped: { count: 1, tools: [{ name: 'odd', reason: 'it has no inputSchema' }] } }
      if (isDown) return { ok: false, problem: `down ${asked.length}` }
      const pins = { tools: [], quarantined: [] }
      return { ok: true, era: 'modern', protocolVersion: '2026-07-28', facts, pins }
    })
    await register('a', 'http://127.0.0.1:9/mcp')
    const isStored = async (count: number): Promise<void> => {
      await eventually(
        () => resource('a'),
        (stored) =>
          isDown
            ? stored?.last_error === `down ${count}`
            : stored?.last_read_at === new Date(AT + passed()).toISOString(),
      )
      // A row is seen before the task has done with its server, which then misses a round.
      for (let turn = 0; turn < 100; turn += 1) await nextTurn()
    }
    await later(0)
    await isStored(1)
    for (const [count, seconds] of [
      [2, 30],
      [3, 60],
      [4, 120],
    ] as const) {
      await later(seconds * 1000 - 1)
      await later(1)
      await isStored(count)
    }
    isDown = false
    for (const count of [5, 6]) {
      await later()
      await isStored(count)
    }
    t.same(asked, [0, 30_000, 90_000, 210_000, 510_000, 810_000])
    await task.stop()
    t.match(
      log.map(({ level, msg, resource: of }) => [level, of, msg]),
      [
        [40, 'a', /could not be read/],
        [30, 'a', 'an MCP server can be read again'],
        [40, 'a', 'tools of an MCP server are skipped'],
      ],
    )
    t.equal(log.length, 3)
  },
)

await t.test('no more than eight servers are read at once, and each has its turn', async (t) => {
  let underWay = 0
  let most = 0
  const asked: string[] = []
  const eight = Promise.withResolvers<void>()
  const { task, log, register, later } = await stage(t, async ({ name }) => {
    asked.push(name)
    underWay += 1
    most = Math.max(most, underWay)
    if (asked.length === 8) eight.resolve()
    await eight.promise
    await nextTurn()
    underWay -= 1
    return { ok: false, problem: 'down' }
  })
  const names = Array.from({ length: 20 }, (_, index) => `up${String(index).padStart(2, '0')}`)
  for (const name of names) await register(name, 'http://127.0.0.1:9/mcp')
  await task.run()
  await eventually(
    () => log.length,
    (lines) => lines === names.length,
  )
  await nextTurn()
  t.equal(most, 8)
  t.same(asked.toSorted(), names)
  await task.run()
  await later()
  await task.stop()
  t.equal(asked.length, 2 * names.length, 'one that could not be read is left alone for a while')
})
