import t from 'tap'
import { CHAT } from '../../support/gateway.ts'
import { type Engine, startWorkers, stopped } from '../../support/workers.ts'

const PATH = '/v1/chat/completions'
const ENGINES: readonly Engine[] = ['sqlite', 'postgres']

for (const engine of ENGINES) {
  t.test(
    `${engine}: one port and one ready line, and workers below the process that was started`,
    async (t) => {
      const gateway = await startWorkers(t, { engine, workers: 3 })
      t.equal(gateway.pids().length, 3)
      const bot = await gateway.enroll('bot', ['llm.chat'])
      const calls = Array.from({ length: 30 }, () => gateway.call(bot, 'POST', PATH, { body: CHAT }))
      const answers = await Promise.all(calls)
      t.same([...new Set(answers.map(({ status }) => status))], [200])

      const rows = await stopped(t, gateway)
      t.same(gateway.pids(), [], 'none is left')
      const requests = gateway.lines().filter(({ msg, path }) => msg === 'request' && path === PATH)
      t.equal(requests.length, 30, 'each has its line, whole')
      t.equal(new Set(requests.map(({ worker }) => worker)).size, 3, 'they spread')
      t.equal(gateway.output().match(/"msg":"ready"/g)?.length, 1)
      t.equal(gateway.output().match(/listening on/g)?.length, 1)

      const count = (action: string): number => rows.filter((row) => row.action === action).length
      const streams = new Set(rows.map(({ stream }) => stream)).size
      t.equal(streams, engine === 'sqlite' ? 1 : 3, 'a stream of all, or one of each')
      for (const action of ['service.started', 'config.loaded', 'service.stopped'])
        t.equal(count(action), streams, action)
      if (engine === 'sqlite') t.equal(rows.at(-1)?.action, 'service.stopped', 'the end is last')
      const decided = rows.filter(({ status }) => status === 'allowed').map(({ request_id: id }) => id)
      const ended = rows.filter(({ status }) => status === 'success').map(({ request_id: id }) => id)
      t.equal(decided.length, 30)
      t.same(
        decided.filter((id) => !ended.includes(id)),
        [],
        'each call has its outcome',
      )
    },
  )
}
