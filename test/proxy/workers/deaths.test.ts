import t, { type Test } from 'tap'
import { agentOf, ask, type Identity } from '../../support/gateway.ts'
import { eventually } from '../../support/settled.ts'
import { completion } from '../../support/upstream.ts'
import {
  type Engine,
  isAlive,
  patiently,
  replaced,
  startWorkers,
  stopped,
  type Workers,
  wholeLedger,
  workersOf,
} from '../../support/workers.ts'

const PATH = '/v1/chat/completions'
const ENGINES: readonly Engine[] = ['sqlite', 'postgres']
const CALLERS = 12

// Workers are killed and hang on each engine, three rounds each: most of a minute, and twice that beside other tests.
t.setTimeout(300_000)

/** What a caller was promised: its call, and the place of its decision in the ledger. */
interface Promised {
  readonly model: string
  readonly stream: string
  readonly seq: number
  readonly hash: string
}

/** Calls over many connections, each made anew where it breaks, until it is told to stop. */
function load(gateway: Workers, bot: Identity) {
  const promised: Promised[] = []
  let [count, stops] = [0, false]
  const caller = async (): Promise<void> => {
    while (!stops) {
      const agent = agentOf(gateway.ca, bot, true)
      try {
        while (!stops) {
          const model = `gpt-${count++}`
          const answer = await ask(`${gateway.url}${PATH}`, 'POST', { agent, body: { model, messages: [] } })
          const receipt = /stream=([^,]+), seq=(\d+), hash=([0-9a-f]{64})/.exec(
            String(answer.headers['audit-receipt']),
          )
          if (answer.status === 200)
            promised.push({
              model,
              stream: receipt?.[1] ?? '',
              seq: Number(receipt?.[2]),
              hash: receipt?.[3] ?? '',
            })
        }
      } catch (error) {
        // Its worker is gone: it tries again, as any client does.
        if (!(error instanceof Error && 'code' in error)) throw error
      } finally {
        agent.destroy()
      }
    }
  }
  const callers = Array.from({ length: CALLERS }, caller)
  const end = async (): Promise<readonly Promised[]> => {
    stops = true
    await Promise.all(callers)
    return promised
  }
  return { promised, end }
}

/** Kills one worker under load and waits until it is replaced, some times. */
async function killUnderLoad(t: Test, gateway: Workers, promised: readonly Promised[]): Promise<void> {
  for (let round = 0; round < 3; round += 1) {
    const before = gateway.pids()
    const enough = promised.length + 40
    await eventually(
      () => promised.length,
      (length) => length >= enough,
    )
    const victim = before[round % before.length] ?? 0
    process.kill(victim, 'SIGKILL')
    t.equal(await replaced(gateway, [victim], before.length), before.length, 'it is replaced')
  }
}

for (const engine of ENGINES) {
  t.test(
    `${engine}: workers die under load: every acknowledged row is there, and no call without its row`,
    async (t) => {
      const gateway = await startWorkers(t, { engine })
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const { promised, end } = load(gateway, bot)
      await killUnderLoad(t, gateway, promised)
      const all = await end()
      // The outcomes of a dead process's calls are written by another one some time later.
      const rows = await stopped(t, gateway)
      const places = new Map(rows.map((row) => [`${row.stream}:${row.seq}`, row]))
      const lost = all.filter(({ stream, seq, hash }) => places.get(`${stream}:${seq}`)?.row_hash !== hash)
      t.same(lost, [], `each of ${all.length} acknowledged rows`)

      const calls = rows.filter(({ action }) => action === 'egress_llm_chat')
      const allowed = calls.filter(({ status }) => status === 'allowed')
      const decided = new Set(allowed.map(({ model }) => model))
      const dispatched = gateway.upstream.seen.map(({ body }) => JSON.parse(body.toString()).model)
      t.same(
        dispatched.filter((model) => !decided.has(model)),
        [],
        'none was sent without its decision',
      )
      if (engine === 'postgres') return
      const outcomes = calls.filter(({ status }) => status !== 'allowed').map(({ request_id: id }) => id)
      t.equal(new Set(outcomes).size, outcomes.length, 'one outcome each')
      const open = allowed.filter(({ request_id: id }) => !outcomes.includes(id))
      t.same(open, [], 'also of those that died with their worker')
      const started = rows.filter(({ action }) => action === 'service.started')
      t.equal(started.length, 1, 'the service has started once')
    },
  )
}

t.test(
  'sqlite: a call that dies with its worker has the outcome unknown, and no other call has',
  async (t) => {
    const gateway = await startWorkers(t, { engine: 'sqlite' })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    // As many as end up at both of the workers.
    const held: (() => void)[] = []
    gateway.upstream.answer = (res, seen) => {
      held.push(() => void completion(res, seen))
    }
    const calls = Array.from({ length: 8 }, () =>
      gateway.call(bot, 'POST', PATH, { body: { model: 'gpt-1', messages: [] } }).then(
        ({ status }) => status,
        () => 'cut',
      ),
    )
    await eventually(
      () => held.length,
      (length) => length === 8,
    )
    const [victim = 0] = gateway.pids()
    process.kill(victim, 'SIGKILL')
    t.equal(await replaced(gateway, [victim], 2), 2)
    for (const answer of held) answer()
    const answers = await Promise.all(calls)
    const rows = await stopped(t, gateway)
    const having = (wanted: string) =>
      rows.filter(({ status, model }) => status === wanted && model === 'gpt-1').length
    t.equal(having('allowed'), 8)
    t.equal(having('success'), answers.filter((answer) => answer === 200).length)
    t.equal(having('unknown'), answers.filter((answer) => answer === 'cut').length)
    t.ok(having('unknown') > 0 && having('success') > 0, 'some died, and some did not')
  },
)

t.test('all workers die at once: they come back at the same port, and one of them leads', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const before = gateway.pids()
  for (const pid of before) process.kill(pid, 'SIGKILL')
  const health = () =>
    gateway.call(null, 'GET', '/health').then(
      ({ status }) => status,
      () => 0,
    )
  t.equal(await patiently(health, (status) => status === 200), 200)
  t.equal(await replaced(gateway, before, 2), 2)
  gateway.child.kill('SIGHUP')
  const loaded = () => gateway.lines().filter(({ msg }) => msg === 'configuration loaded').length
  t.equal(await eventually(loaded, (count) => count === 1), 1)
  await stopped(t, gateway)
})

t.test('a worker that hangs is killed and replaced', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const [victim = 0] = gateway.pids()
  process.kill(victim, 'SIGSTOP')
  t.notOk(
    await patiently(
      () => isAlive(victim),
      (alive) => !alive,
    ),
    'it is killed',
  )
  t.equal(await replaced(gateway, [victim], 2), 2)
  // Lines are written some at a time.
  const said = () => gateway.output().includes('a worker hangs and is killed')
  t.ok(await patiently(said, (is) => is), gateway.output())
  await stopped(t, gateway)
})

for (const engine of ENGINES) {
  t.test(
    `${engine}: the process above dies: its workers end within 5 s, and the next start goes on`,
    async (t) => {
      const gateway = await startWorkers(t, { engine })
      const bot = await gateway.enroll('bot', ['llm.chat'])
      // A call that would go on for ever.
      gateway.upstream.answer = () => {}
      const call = gateway
        .call(bot, 'POST', PATH, { body: { model: 'gpt-1', messages: [] } })
        .catch(() => null)
      await eventually(
        () => gateway.upstream.seen.length,
        (length) => length === 1,
      )
      const pids = gateway.pids()
      gateway.child.kill('SIGKILL')
      t.equal(
        await eventually(
          () => pids.some(isAlive),
          (some) => !some,
        ),
        false,
        'they have ended',
      )
      await call
      gateway.upstream.answer = completion
      const next = await workersOf(t, gateway.env, gateway.upstream)
      const { status } = await next.call(bot, 'POST', PATH, { body: { model: 'gpt-2', messages: [] } })
      t.equal(status, 200)
      const rows = await stopped(t, next)
      if (engine === 'postgres') return
      const first = rows.filter(({ model }) => model === 'gpt-1').map((row) => row.status)
      t.same(first, ['allowed', 'unknown'])
    },
  )
}

t.test('workers that cannot start at all end the gateway with a sentence', async (t) => {
  const gateway = await startWorkers(t, { engine: 'sqlite' })
  const { writeFile } = await import('node:fs/promises')
  await writeFile(`${gateway.env.MCP_PROXY_PLUGINS_DIR}/50-llm.yaml`, 'plugin: nothing\n')
  const [one = 0, other = 0] = gateway.pids()
  process.kill(one, 'SIGKILL')
  await patiently(gateway.output, (text) => /50-llm\.yaml/.test(text))
  t.equal((await gateway.call(null, 'GET', '/health')).status, 200, 'the other one still serves')
  process.kill(other, 'SIGKILL')
  const { code, output } = await gateway.ended
  t.equal(code, 1)
  t.match(output, 'sallyport: stopping: 3 workers ended before they served, within 60 s')
  await wholeLedger(t, gateway.databaseUrl)
})
