import { hash } from 'node:crypto'
import t from 'tap'
import type { LedgerUnit } from '../../../db/ledger/record/entry.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { insertPrincipal } from '../../../db/principals/write.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { replica } from '../../support/db/postgres/replica.ts'
import { countedWay } from '../../support/db/postgres/turns.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

t.test('a batch of decisions is two round trips, however many it holds', async (t) => {
  const way = await countedWay(t, await server.fresh())
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
