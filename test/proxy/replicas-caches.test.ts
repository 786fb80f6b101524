import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { cluster } from '../support/db/postgres/cluster.ts'
import { endPresence, raw } from '../support/db/postgres/replica.ts'
import { type Stages, twoStages } from '../support/db/postgres/stages.ts'
import type { Identity } from '../support/gateway.ts'
import { type Stage, tool, toolServer } from '../support/mcp/stage.ts'

const CHAT = { model: 'gpt-5-mini', messages: [] }
const chat = (gateway: Stage, who: Identity) =>
  gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })

/** What is granted and revoked at one replica, and asked at the other with the next call. */
async function inTurns(t: Parameters<typeof twoStages>[0], { one, other }: Stages, rounds: number) {
  const bot = await one.enroll('bot', [])
  for (let round = 0; round < rounds; round += 1) {
    t.match(await chat(other, bot), { status: 403, json: { required_capability: 'llm.chat' } }, 'revoked')
    t.equal((await one.grant(bot, ['llm.chat'])).status, 200)
    t.equal((await chat(other, bot)).status, 200, 'granted')
    t.equal((await one.grant(bot, [])).status, 200)
  }
}

t.test(
  'what is revoked at one replica is refused at the other with the next call, and what is granted passes',
  async (t) => {
    await inTurns(t, await twoStages(t), 8)
  },
)

t.test('it is so too where the other one does not hear of it', async (t) => {
  const stages = await twoStages(t)
  const ending = new AbortController()
  let count = 0
  // Again and again: each time the replicas have listened for a moment.
  const ended = (async () => {
    while (!ending.signal.aborted) count += await endPresence(stages.url)
  })()
  // Turns are quick, and a session that is ended takes its time to come back.
  for (let rounds = 0; count < 3 && rounds < 40; rounds += 1) await inTurns(t, stages, 5)
  ending.abort()
  await ended
  t.ok(count > 2)
})

/** From now on a change says nothing: replicas learn of it by their beats, a fifth of a second later. */
const mute = (url: string) =>
  raw(
    url,
    `create or replace function authority_changed() returns trigger language plpgsql as $$
     begin update authority_generation set generation = generation + 1; return null; end $$`,
  )

t.test('and where its notices come late', async (t) => {
  const stages = await twoStages(t)
  await mute(stages.url)
  await inTurns(t, stages, 5)
})

t.test(
  'who is deactivated at one replica is refused at the other, and served again once active',
  async (t) => {
    const { url, one, other } = await twoStages(t)
    await mute(url)
    const bot = await one.enroll('bot', ['llm.chat'])
    const path = `/v1/admin/agents/${bot.id}`
    for (let round = 0; round < 5; round += 1) {
      t.equal((await chat(other, bot)).status, 200)
      t.equal((await one.admin('DELETE', path)).status, 204)
      t.match(await chat(other, bot), { status: 401 })
      t.equal((await one.admin('POST', `${path}/reactivate`)).status, 200)
    }
  },
)

t.test('a binding that is made or ended at one replica holds at the other with the next call', async (t) => {
  const { url, one, other } = await twoStages(t)
  await mute(url)
  const files = await one.register('files', await toolServer(t, [tool('read')]))
  const bot = await one.enroll('bot', ['files.use'])
  for (let round = 0; round < 5; round += 1) {
    t.ok((await other.callTool(bot, 'files.read')).json.error, 'not bound')
    const { binding_id: id } = await one.bind(bot, files)
    t.ok((await other.callTool(bot, 'files.read')).json.result, 'bound')
    t.equal((await one.admin('DELETE', `/v1/admin/mcp-resources/bindings/${id}`)).status, 204)
  }
})

t.test('an allowed call in steady state asks the database for nothing but its commit', async (t) => {
  const { url, one } = await twoStages(t)
  const files = await one.register('files', await toolServer(t, [tool('read')]), {
    required_capability: 'files.use',
  })
  const bot = await one.enroll('bot', ['llm.chat', 'files.use'])
  await one.bind(bot, files)
  const both = async () => {
    t.equal((await chat(one, bot)).status, 200)
    t.ok((await one.callTool(bot, 'files.read')).json.result)
  }
  await both()
  const { rows } = await raw(url, 'select clock_timestamp() as at')
  for (let call = 0; call < 5; call += 1) await both()
  // The last question of each session that only reads: by these tables a caller is found.
  const asked = await raw(
    url,
    `select query from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
     and query_start > $1 and query ~ '^select' and query ~ 'certificate_pins|mcp_bindings"|mcp_tools|"name" = '`,
    [rows[0].at],
  )
  t.same(asked.rows, [])
})

t.test(
  'while the server is frozen calls are 503, cached or not, and behind it they are served',
  async (t) => {
    const server = await cluster()
    const { one, other } = await twoStages(t)
    const bot = await one.enroll('bot', ['llm.chat'])
    const none = await one.enroll('none', [])
    t.equal((await chat(other, bot)).status, 200)
    t.equal((await chat(other, none)).status, 403)
    const { rows } = await raw(
      server.url('postgres'),
      'select pid from pg_stat_activity where pid <> pg_backend_pid()',
    )
    const all = [server.postmaster(), ...rows.map(({ pid }) => Number(pid))]
    const asked = other.upstream.seen.length
    for (const pid of all) process.kill(pid, 'SIGSTOP')
    const answers = await Promise.all([chat(other, bot), chat(other, none)]).finally(() => {
      for (const pid of all) process.kill(pid, 'SIGCONT')
    })
    t.same(
      answers.map(({ status }) => status),
      [503, 503],
    )
    t.equal(other.upstream.seen.length, asked)
    let { status } = await chat(other, bot)
    for (let tries = 0; status === 503 && tries < 50; tries += 1) ({ status } = await chat(other, bot))
    t.equal(status, 200)
  },
)

t.test('a look-up gives what was kept while its session stands, and asks where it does not', async (t) => {
  const { url, one } = await twoStages(t)
  const database = await openDatabase(url)
  t.teardown(() => database.close())
  const value = database.lookup(
    database.kysely.selectFrom('internal_agents').select('display_name').where('agent_id', '=', ''),
  )
  const { id } = await one.enroll('bot', [])
  const isAsked = async (who: string): Promise<boolean> => {
    const given = value(who)
    await given
    return given instanceof Promise
  }
  t.ok(await isAsked(id), 'nobody listens here yet')
  t.ok(await isAsked(id))
  database.notices.on('anything', () => {})
  while (await isAsked(id));
  t.same(value(id), { display_name: null })
  t.ok(await isAsked('nobody'))
  t.equal(await value('nobody'), undefined)
  t.ok(await isAsked('nobody'), 'what is not there is asked for each time')
  await endPresence(url)
  while (database.notices.listening) await new Promise(setImmediate)
  t.ok(await isAsked(id), 'nobody listens any more')
})
