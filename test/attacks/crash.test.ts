import { randomInt } from 'node:crypto'
import { Agent } from 'node:https'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { type AuditRow, verifyDatabase } from '../../db/ledger/read/read.ts'
import { databaseUrl } from '../support/db/engine.ts'
import { listedRows } from '../support/db/listed-rows.ts'
import { ADMIN_SECRET, agentOf, ask, type Identity } from '../support/gateway.ts'
import { environment, type Process, startProcess } from '../support/process.ts'
import { chatBytes, type RawConnection, rawConnect, requestBytes, statuses } from '../support/raw.ts'
import { eventually } from '../support/settled.ts'
import { completion, type TestUpstream, testUpstream } from '../support/upstream.ts'

const PATH = '/v1/chat/completions'
const ROUNDS = 4
const CALLERS = 16
/** Calls of a round that are answered before the kill, at most. */
const ANSWERED = 200
/** Within what time the calls of a process that died are closed by another one. ms. */
const CLOSED_MS = 60_000

/** What a caller was promised: its call, and the place of its decision in the ledger. */
interface Promised {
  readonly model: string
  readonly seq: number
  readonly hash: string
}

interface Started extends Process {
  readonly url: string
  readonly ca: string
}

async function started(t: Test, env: Readonly<Record<string, string>>): Promise<Started> {
  const process = startProcess(t, env)
  const url = await process.ready
  const agent = new Agent({ rejectUnauthorized: false })
  const { text: ca } = await ask(`${url}/pki/ca.crt`, 'GET', { agent })
  return { ...process, url, ca }
}

async function enroll({ url, ca }: Started): Promise<Identity> {
  const body = { agent_name: 'bot', capabilities: ['llm.chat'] }
  const headers = { 'x-admin-secret': ADMIN_SECRET }
  const { json } = await ask(`${url}/v1/admin/agents`, 'POST', { agent: new Agent({ ca }), headers, body })
  return { id: json.agent_id, cert: json.cert_chain_pem, key: json.private_key_pem }
}

/**
 * Calls from many callers at once until the process dies under them; resolves with what was promised to them.
 */
async function load(
  gateway: Started,
  bot: Identity,
  round: number,
  killAfter: number,
): Promise<readonly Promised[]> {
  const promised: Promised[] = []
  let count = 0
  const caller = async (): Promise<void> => {
    const agent = agentOf(gateway.ca, bot, true)
    try {
      for (;;) {
        const model = `gpt-${round}-${count++}`
        const answer = await ask(`${gateway.url}${PATH}`, 'POST', { agent, body: { model, messages: [] } })
        const receipt = /seq=(\d+), hash=([0-9a-f]{64})/.exec(String(answer.headers['audit-receipt']))
        promised.push({ model, seq: Number(receipt?.[1]), hash: receipt?.[2] ?? '' })
        if (promised.length === killAfter) gateway.child.kill('SIGKILL')
      }
    } catch (error) {
      // The process is gone. Anything else is no business of this caller.
      if (!(error instanceof Error && 'code' in error)) throw error
    } finally {
      agent.destroy()
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  return promised
}

async function ledgerOf(t: Test, directory: string): Promise<readonly AuditRow[]> {
  const database = await openDatabase(await databaseUrl(join(directory, 'data')))
  t.match(await verifyDatabase(database.kysely), { ok: true }, 'the chain verifies')
  const rows = await listedRows(database)
  await database.close()
  return rows
}

t.test(
  'F-02 killed at random under load, the ledger holds all that was acknowledged, and nothing was done without it',
  async (t) => {
    const directory = t.testdir({})
    const upstream = await testUpstream(t)
    const env = await environment(directory, upstream.url)
    const promised: Promised[] = []
    let bot: Identity | null = null
    for (let round = 0; round < ROUNDS; round += 1) {
      const gateway = await started(t, env)
      bot ??= await enroll(gateway)
      const killAfter = randomInt(1, ANSWERED)
      promised.push(...(await load(gateway, bot, round, killAfter)))
      t.match(await gateway.ended, { signal: 'SIGKILL' }, `round ${round}: killed after ${killAfter} answers`)
    }
    const last = await started(t, env)
    // One who starts on SQLite is alone, and closes at once what others left open. Among several, it is first made
    // sure that they are gone.
    await eventually(
      () => openCalls(directory),
      (count) => count === 0,
      CLOSED_MS,
    )
    last.child.kill('SIGTERM')
    t.match(await last.ended, { code: 0 })

    const rows = await ledgerOf(t, directory)
    const decisions = rows.filter(({ status }) => status === 'allowed')
    const places = new Map(decisions.map((row) => [row.model, row]))
    const missing = promised.filter(({ model, seq, hash }) => {
      const row = places.get(model)
      return row?.seq !== seq || row.row_hash !== hash
    })
    t.same(missing, [], `${promised.length} acknowledged rows are where their receipts say`)
    t.same(
      undecided(upstream, places),
      [],
      `none of ${upstream.seen.length} upstream calls was made without its row`,
    )
    const ends = rows.filter(({ action, status }) => action === 'egress_llm_chat' && status !== 'allowed')
    t.equal(ends.length, decisions.length)
    t.same(idsOf(ends), idsOf(decisions), 'exactly one outcome for each decision')
    t.ok(ends.some(({ status }) => status === 'success'))
    const unknown = ends.filter(({ status }) => status === 'unknown')
    t.ok(unknown.length <= ROUNDS * CALLERS * 2, `${unknown.length} calls of which nobody knows the end`)
  },
)

/** How many calls have a decision and no outcome. */
async function openCalls(directory: string): Promise<number> {
  const database = await openDatabase(await databaseUrl(join(directory, 'data')))
  const calls = database.kysely.selectFrom('audit_log').where('action', '=', 'egress_llm_chat')
  const open = calls.groupBy('request_id').having(({ fn }) => fn.countAll(), '=', 1)
  const { length } = await open.select('request_id').execute()
  await database.close()
  return length
}

const idsOf = (rows: readonly AuditRow[]) => new Set(rows.map(({ request_id: id }) => id))

function undecided({ seen }: TestUpstream, decided: ReadonlyMap<string | null, AuditRow>): readonly string[] {
  const asked = seen.map(({ body }): string => JSON.parse(body.toString()).model)
  return asked.filter((model) => !decided.has(model))
}

/** A connection that was used once: a stop closes it at once, which tells that the stop has begun. */
async function idleConnection(t: Test, gateway: Started): Promise<RawConnection> {
  const connection = await rawConnect(t, gateway, null)
  connection.send(requestBytes('GET', '/health'))
  await connection.until('"ok"')
  return connection
}

t.test(
  'F-30 the process drains on SIGTERM: what is under way is completed, and it ends with 0',
  async (t) => {
    const directory = t.testdir({})
    const upstream = await testUpstream(t)
    const release = Promise.withResolvers<void>()
    upstream.answer = async (res, seen) => {
      await release.promise
      await completion(res, seen)
    }
    const gateway = await started(t, await environment(directory, upstream.url))
    const bot = await enroll(gateway)
    const agent = new Agent({ ca: gateway.ca, cert: bot.cert, key: bot.key })
    const body = { model: 'gpt-test', messages: [] }
    const calls = Array.from({ length: 10 }, () => ask(`${gateway.url}${PATH}`, 'POST', { agent, body }))
    await eventually(
      () => upstream.seen.length,
      (count) => count === 10,
    )
    const idle = await idleConnection(t, gateway)
    gateway.child.kill('SIGTERM')
    await idle.closed
    release.resolve()
    t.same(
      (await Promise.all(calls)).map(({ status }) => status),
      Array(10).fill(200),
    )
    t.match(await gateway.ended, { code: 0, signal: null })
    const rows = await ledgerOf(t, directory)
    t.match(rows.at(-1), { action: 'service.stopped' })
    t.equal(
      rows.filter(({ action, status }) => action === 'egress_llm_chat' && status === 'success').length,
      10,
    )
  },
)

t.test('F-30 a second SIGTERM ends what hangs and what streams, in order', async (t) => {
  const directory = t.testdir({})
  const upstream = await testUpstream(t)
  upstream.answer = (res, { body }) => {
    if (body.includes('"stream":true'))
      res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {}\n\n')
  }
  const gateway = await started(t, await environment(directory, upstream.url))
  const bot = await enroll(gateway)
  const streaming = await rawConnect(t, gateway, bot)
  streaming.send(chatBytes('gpt-stream', [], { stream: true }))
  await streaming.until('data: {}')
  const hanging = await rawConnect(t, gateway, bot)
  hanging.send(chatBytes('gpt-hang'))
  await eventually(
    () => upstream.seen.length,
    (count) => count === 2,
  )
  const idle = await idleConnection(t, gateway)
  gateway.child.kill('SIGTERM')
  await idle.closed
  gateway.child.kill('SIGTERM')
  t.match(await gateway.ended, { code: 0, signal: null })
  t.notMatch(await streaming.closed, /\r\n0\r\n|\[DONE\]/)
  t.same(statuses(await hanging.closed), [])
  const rows = await ledgerOf(t, directory)
  t.equal(rows.filter(({ status }) => status === 'truncated').length, 2)
  t.match(rows.at(-1), { action: 'service.stopped' })
})
