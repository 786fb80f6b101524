import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { CHAT } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { completion } from '../../support/upstream.ts'
import {
  atEachWorker,
  type Engine,
  replaced,
  startWorkers,
  stopped,
  type Workers,
  wholeLedger,
} from '../../support/workers.ts'

const PATH = '/v1/chat/completions'
const ENGINES: readonly Engine[] = ['sqlite', 'postgres']
const MCP = '60-mcp.yaml'

const loadedAt = ({ lines }: Workers) => lines().filter(({ msg }) => msg === 'configuration loaded').length

const fileOf = ({ env }: Workers, name: string) => join(env.MCP_PROXY_PLUGINS_DIR ?? '', name)

for (const engine of ENGINES) {
  t.test(`${engine}: SIGHUP has all workers read the files anew, or none`, async (t) => {
    const gateway = await startWorkers(t, { engine })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const digests = (action: string, rows: Awaited<ReturnType<typeof wholeLedger>>) =>
      rows.filter((row) => row.action === action).map(({ detail }) => detail.digest)

    await writeFile(fileOf(gateway, MCP), 'plugin: mcp\nrefresh_interval_s: 60\n')
    gateway.child.kill('SIGHUP')
    t.equal(
      await eventually(
        () => loadedAt(gateway),
        (count) => count === 1,
      ),
      1,
      'it is logged once',
    )
    await atEachWorker(gateway, bot, 'POST', PATH, { body: CHAT })

    await writeFile(fileOf(gateway, MCP), 'plugin: mcp\nrefresh_interval_s: often\n')
    gateway.child.kill('SIGHUP')
    await eventually(gateway.output, (text) => /configuration rejected/.test(text))
    const answers = await atEachWorker(gateway, bot, 'POST', PATH, { body: CHAT })
    t.same([...new Set(answers.map(({ status }) => status))], [200])
    const { text } = await gateway.admin('GET', '/metrics')
    t.match(text, 'sallyport_config_reloads_total{result="loaded"} 1\n')
    t.match(text, 'sallyport_config_reloads_total{result="rejected"} 1\n')

    await rm(fileOf(gateway, MCP))
    const rows = await stopped(t, gateway)
    const streams = new Set(rows.map(({ stream }) => stream)).size
    t.equal(digests('config.loaded', rows).length, 2 * streams)
    t.equal(digests('config.rejected', rows).length, streams)
    const [first, second] = [...new Set(digests('config.loaded', rows))]
    const judged = rows.filter(({ status }) => status === 'allowed').map((row) => row.config_digest)
    t.same([...new Set(judged)], [second], 'all calls were judged by the second')
    t.not(first, second)
  })

  t.test(`${engine}: SIGTERM lets the streams of all workers end, and takes no new call`, async (t) => {
    const gateway = await startWorkers(t, { engine })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const held: (() => void)[] = []
    gateway.upstream.answer = (res, seen) => {
      held.push(() => void completion(res, seen))
    }
    const calls = Array.from({ length: 6 }, () => gateway.call(bot, 'POST', PATH, { body: CHAT }))
    await eventually(
      () => held.length,
      (length) => length === calls.length,
    )
    gateway.child.kill('SIGTERM')
    const refused = () =>
      gateway.call(null, 'GET', '/health').then(
        () => false,
        () => true,
      )
    t.ok(await eventually(refused, (is) => is), 'nobody is let in any more')
    for (const answer of held) answer()
    t.same(
      (await Promise.all(calls)).map(({ status }) => status),
      calls.map(() => 200),
    )
    t.match(await gateway.ended, { code: 0, signal: null })
    const rows = await wholeLedger(t, gateway.databaseUrl)
    t.equal(
      rows.filter(({ status, model }) => status === 'success' && model === CHAT.model).length,
      calls.length,
    )
  })
}

t.test('the second SIGTERM cuts what is under way, at all workers', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  gateway.upstream.answer = () => {}
  const calls = Array.from({ length: 4 }, () =>
    gateway.call(bot, 'POST', PATH, { body: CHAT }).catch(() => null),
  )
  await eventually(
    () => gateway.upstream.seen.length,
    (length) => length === calls.length,
  )
  gateway.child.kill('SIGTERM')
  const refused = () =>
    gateway.call(null, 'GET', '/health').then(
      () => false,
      () => true,
    )
  await eventually(refused, (is) => is)
  t.equal(gateway.pids().length, 2, 'they wait')
  gateway.child.kill('SIGTERM')
  t.match(await gateway.ended, { code: 0, signal: null })
  await Promise.all(calls)
  const rows = await wholeLedger(t, gateway.databaseUrl)
  t.equal(rows.at(-1)?.action, 'service.stopped')
})

t.test('a worker that comes when the files have changed takes all others with it', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  await atEachWorker(gateway, bot, 'POST', PATH, { body: CHAT })
  await writeFile(fileOf(gateway, MCP), 'plugin: mcp\nrefresh_interval_s: 60\n')
  const [victim = 0] = gateway.pids()
  process.kill(victim, 'SIGKILL')
  t.equal(await replaced(gateway, [victim], 2), 2)
  await atEachWorker(gateway, bot, 'POST', PATH, { body: CHAT })
  const rows = await stopped(t, gateway)
  const loaded = rows.filter(({ action }) => action === 'config.loaded')
  t.equal(loaded.length, 2)
  const after = rows.filter(({ seq, status }) => status === 'allowed' && seq > (loaded[1]?.seq ?? 0))
  t.ok(after.length > 0)
  t.same([...new Set(after.map((row) => row.config_digest))], [loaded[1]?.detail.digest])
})

t.test('/metrics at any worker are those of all, and what a dead one has counted still counts', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const bot = await gateway.enroll('bot', ['llm.chat'])
  const served = (text: string) =>
    Number(
      /^sallyport_requests_total\{route="\/v1\/chat\/completions",method="POST",status="200"\} (\d+)$/m.exec(
        text,
      )?.[1] ?? 0,
    )
  const calls = Array.from({ length: 20 }, () => gateway.call(bot, 'POST', PATH, { body: CHAT }))
  await Promise.all(calls)
  const scraped = async () => (await gateway.admin('GET', '/metrics')).text
  t.equal(served(await eventually(scraped, (text) => served(text) === 20)), 20)
  const disk = (text: string) => Number(/^sallyport_disk_reserve_bytes (\d+)$/m.exec(text)?.[1])
  t.ok(disk(await scraped()) <= 256 * 1_048_576, 'the disk is not added up')
  const [victim = 0] = gateway.pids()
  process.kill(victim, 'SIGKILL')
  t.equal(await replaced(gateway, [victim], 2), 2)
  await gateway.call(bot, 'POST', PATH, { body: CHAT })
  t.equal(served(await eventually(scraped, (text) => served(text) >= 21)), 21)
  await stopped(t, gateway)
})
