import { Client } from 'pg'
import t from 'tap'
import { BEGIN_CHANGES } from '../../db/postgres/ledger/locks.ts'
import { cluster } from '../support/db/postgres/cluster.ts'
import { CHAT, testGateway } from '../support/gateway.ts'

const server = await cluster()

t.test(
  'F-25 who holds the lock of authority keeps calls out with 503 and none waiting; nothing is dispatched, and it is ended',
  async (t) => {
    const url = await server.migrated()
    const settings = {
      MCP_PROXY_DATABASE_URL: url,
      MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all replicas',
    }
    const gateway = await testGateway(t, { settings, ownCa: true })
    const bot = await gateway.enroll('bot', ['llm.chat'])
    const chat = () => gateway.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })
    t.equal((await chat()).status, 200)
    const holder = new Client(url)
    const ended = new Promise((resolve) => holder.on('error', resolve))
    await holder.connect()
    t.teardown(() => holder.end().catch(() => {}))
    await holder.query(BEGIN_CHANGES)
    const dispatched = gateway.upstream.seen.length
    const refused = await Promise.all([chat(), chat(), chat()])
    for (const answer of refused)
      t.match(answer, {
        status: 503,
        json: { error: { code: 'audit_unavailable' } },
      })
    t.equal(gateway.upstream.seen.length, dispatched)
    // Without help: whoever waits for it ends it.
    let last = 503
    while (last === 503) last = (await chat()).status
    t.equal(last, 200)
    await ended
  },
)
