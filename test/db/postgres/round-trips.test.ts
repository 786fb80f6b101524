import { hash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { LedgerUnit } from '../../../db/ledger/record/entry.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { insertPrincipal } from '../../../db/principals/write.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { countedWay } from '../../support/db/postgres/turns.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'
import { testGateway } from '../../support/gateway.ts'

const server = await cluster()

t.test('a batch of decisions is two round trips, however many it holds', async (t) => {
  const way = await countedWay(t, await server.migrated())
  const { database, ledger } = await replica(t, way.url)
  const ids = Array.from({ length: 200 }, (_, n) => `acme::bot-${n}`)
  await ledger.commit({ statements: ids.map((id) => creation(id)), entries: [entry()] })

  function creation(id: string) {
    return insertPrincipal(database, {
      ...{ type: 'agent', id, ref: id, name: id.slice(6), displayName: null, capabilities: [] },
      ...{ enrollmentMethod: 'minted', spiffeId: null, dpopJkt: null, federated: false, at: AT },
    })
  }
  const unchanged = authorityUnchanged(database)
  const decision = (id: string, revision: number, proof: string): LedgerUnit => ({
    assertions: [unchanged('agent', id, revision)],
    statements: [claimOnce(database, hash('sha256', proof), AT)],
    entries: [entry({ principal_id: id })],
  })
  /** Says the round trips of one batch, and what became of its units. */
  async function batch(units: readonly LedgerUnit[]) {
    const before = way.turns()
    const settled = await Promise.allSettled(units.map((unit) => ledger.commit(unit)))
    const refused = settled.flatMap((one) => (one.status === 'rejected' ? [one.reason.code] : []))
    return { turns: way.turns() - before, refused }
  }

  t.same(await batch([decision('acme::bot-0', 1, 'one')]), { turns: 2, refused: [] })
  t.same(await batch(ids.map((id) => decision(id, 1, id))), { turns: 2, refused: [] })
  t.same(await batch([{ entries: [entry()] }]), { turns: 2, refused: [] }, 'a row alone')
  const plain = { assertions: [unchanged('agent', 'acme::bot-1', 2)], entries: [entry()] }
  t.same(await batch([plain, decision('acme::bot-1', 1, 'two')]), { turns: 2, refused: ['stale'] })
  const replay = decision('acme::bot-2', 1, 'two')
  t.same(await batch([replay, decision('acme::bot-2', 1, 'three')]), { turns: 2, refused: ['duplicate'] })
  const [stale, same] = [decision('acme::bot-3', 9, 'four'), decision('acme::bot-4', 1, 'four')]
  t.same(await batch([stale, same]), { turns: 2, refused: ['stale'] }, 'who is refused has claimed nothing')
  t.same(await batch([decision('acme::bot-3', 9, 'five')]), { turns: 3, refused: ['stale'] }, 'undone')
  t.same(await batch([decision('acme::bot-3', 1, 'five')]), { turns: 2, refused: [] })
})

/** The time that gateways are listened to: each of their tasks has its turn. ms. */
const HEARD_MS = 10_000
/** Every row is sealed and counted. */
const IS_TENDED = `select place = (select max(place) from audit_trees) and place = (select place from row_counts_place) as is
from audit_rows order by place desc limit 1`
/** The time that a gateway has been up, as far as it knows: claims are forgotten by then. ms. */
const UP_MS = 900_000

t.test(
  'an idle gateway asks at most 6 statements a second, whoever leads, and ends no session',
  async (t) => {
    const [alone, shared] = [await server.migrated(), await server.migrated()]
    const urls = [alone, shared, shared, shared, shared]
    let ahead = 0
    const ways = []
    for (const url of urls) {
      const way = await countedWay(t, url)
      const settings = { MCP_PROXY_DATABASE_URL: way.url, MCP_PROXY_KEY_PASSPHRASE: 'the passphrase of all' }
      await testGateway(t, { settings, monotonic: () => performance.now() + ahead })
      ways.push(way)
    }
    ahead = UP_MS
    for (const url of [alone, shared]) while (!(await raw(url, IS_TENDED)).rows[0]?.is) await sleep(50)
    const before = ways.map((way) => way.statements().length)
    await sleep(HEARD_MS)
    for (const [n, way] of ways.entries()) {
      const heard = way.statements().slice(before[n])
      const aSecond = (heard.length * 1_000) / HEARD_MS
      t.ok(aSecond > 2 && aSecond <= 6, `gateway ${n} asked ${aSecond} a second`)
      t.same(
        heard.filter((text) => text.includes('pg_terminate_backend')),
        [],
        'nobody is silent',
      )
    }
    t.ok(
      ways[0]?.statements().some((text) => text.includes('from "single_uses"')),
      'claims were looked at',
    )
  },
)
