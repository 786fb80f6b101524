import { hash } from 'node:crypto'
import fc from 'fast-check'
import { Client } from 'pg'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { verifyDatabase } from '../../../db/ledger/read/read.ts'
import { draftOf } from '../../../db/ledger/record/draft.ts'
import type { SealedRow } from '../../../db/ledger/record/entry.ts'
import { assembleLeaf, GENESIS_HASH, hashOf } from '../../../db/ledger/record/leaf.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import { leafHash } from '../../../db/ledger/tree/hashes.ts'
import { POSTGRES_MIGRATIONS } from '../../../db/postgres/database.ts'
import { AbandonedStreams } from '../../../db/postgres/ledger/unfinished.ts'
import { clockProblem } from '../../../db/postgres/ledger/writer.ts'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { insertPrincipal, setActive } from '../../../db/principals/write.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { anyEntry } from '../../support/db/any-entry.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { type Replica, raw, replica } from '../../support/db/postgres/replica.ts'
import { AT, entry, VERSION } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

const replicas = (
  t: Parameters<typeof replica>[0],
  url: string,
  count: number,
): Promise<readonly Replica[]> => Promise.all(Array.from({ length: count }, () => replica(t, url)))

t.test('ten replicas may start at once on an empty database', async (t) => {
  const url = await server.fresh()
  const opened = await Promise.all(Array.from({ length: 10 }, () => openDatabase(url)))
  t.teardown(() => Promise.all(opened.map((database) => database.close())))
  const { rows } = await raw(url, 'select count(*)::int as count from kysely_migration')
  t.match(rows, [{ count: Object.keys(POSTGRES_MIGRATIONS).length }])
})

t.test('each replica has a stream of its own, whole and without a gap', async (t) => {
  const url = await server.migrated()
  const all = await replicas(t, url, 3)
  const sealed = await Promise.all(
    all.flatMap(({ ledger }) => Array.from({ length: 200 }, () => ledger.commit({ entries: [entry()] }))),
  )
  const byStream = Map.groupBy(sealed.flat(), ({ stream }: SealedRow) => stream)
  t.equal(byStream.size, 3)
  for (const rows of byStream.values()) {
    t.same(
      rows.map(({ seq }) => seq),
      rows.map((_, index) => index + 1),
    )
  }
  const [first] = all
  t.match(first && (await verifyDatabase(first.database.kysely)), { ok: true, rows: 600, streams: 3 })
})

t.test('of many copies of one proof exactly one passes, whichever replicas they reach', async (t) => {
  const url = await server.migrated()
  const all = await replicas(t, url, 3)
  for (let round = 0; round < 30; round += 1) {
    const digest = hash('sha256', `proof ${round}`)
    const settled = await Promise.allSettled(
      Array.from({ length: 99 }, (_, copy) => {
        const { database, ledger } = all[copy % 3] as Replica
        return ledger.commit({ statements: [claimOnce(database, digest, AT)], entries: [entry()] })
      }),
    )
    const [passed, refused] = ['fulfilled', 'rejected'].map((how) =>
      settled.filter(({ status }) => status === how),
    )
    t.equal(passed?.length, 1, `round ${round}`)
    t.ok(refused?.every((one) => one.status === 'rejected' && one.reason.code === 'duplicate'))
  }
})

t.test('a unit that is refused for one claim has made none of its others', async (t) => {
  const { database, ledger } = await replica(t, await server.migrated())
  const claim = (text: string) => claimOnce(database, hash('sha256', text), AT)
  await ledger.commit({ statements: [claim('used')], entries: [entry()] })
  await t.rejects(ledger.commit({ statements: [claim('fresh'), claim('used')], entries: [entry()] }), {
    code: 'duplicate',
  })
  await t.resolves(ledger.commit({ statements: [claim('fresh')], entries: [entry()] }))
})

t.test(
  'B1 once a deactivation is acknowledged, no replica commits a decision by the revision before',
  async (t) => {
    const url = await server.migrated()
    const [operator, ...others] = await replicas(t, url, 3)
    if (!operator) throw new Error('there are three')
    for (let round = 0; round < 20; round += 1) {
      const id = `acme::bot-${round}`
      await operator.ledger.commit({
        statements: [
          insertPrincipal(operator.database, {
            ...{ type: 'agent', id, ref: id, name: `bot-${round}`, displayName: null, capabilities: [] },
            ...{ enrollmentMethod: 'minted', spiffeId: null, dpopJkt: null, federated: false, at: AT },
          }),
        ],
        entries: [entry({ action: 'agent.created' })],
      })
      let acknowledged = false
      const late: string[] = []
      const deciding = others.map(async ({ database, ledger }) => {
        const assertion = authorityUnchanged(database)('agent', id, 1)
        for (;;) {
          const asked = acknowledged
          try {
            await ledger.commit({ assertions: [assertion], entries: [entry()] })
          } catch {
            return
          }
          if (asked) late.push(id)
        }
      })
      await operator.ledger.commit({
        statements: [setActive(operator.database, { type: 'agent', id, at: AT, active: false })],
        entries: [entry({ action: 'agent.deactivated' })],
      })
      acknowledged = true
      await Promise.all(deciding)
      t.same(late, [], `round ${round}`)
    }
  },
)

t.test('the calls of a replica that died get their outcome from another one, once', async (t) => {
  const url = await server.migrated()
  const gone = await openDatabase(url)
  const ledger = await openLedger({ database: gone, version: VERSION })
  const ended = entry({ request_id: 'req_ended' })
  await ledger.commit({ entries: [ended, entry({ request_id: 'req_open' })] })
  await ledger.commit({ entries: [{ ...ended, status: 'success' }] })
  const others = await replicas(t, url, 2)
  const client = new Client(url)
  await client.connect()
  t.teardown(() => client.end())
  const watching = others.map(() => new AbandonedStreams('of a replica that has written nothing'))
  const lookAt = async (now: number) => {
    const found = []
    for (const abandoned of watching) found.push(await abandoned.look(client, now))
    return found.map((streams) => streams.filter(({ decisions }) => decisions.length > 0))
  }
  t.same(await lookAt(0), [[], []], 'its writer lives')
  t.same(await lookAt(60_000), [[], []])
  await ledger.close()
  await gone.close()
  t.same(await lookAt(70_000), [[], []], 'it may come back')
  const found = await lookAt(90_000)
  t.match(found, [
    [{ decisions: [{ request_id: 'req_open' }] }],
    [{ decisions: [{ request_id: 'req_open' }] }],
  ])
  const settled = await Promise.allSettled(
    others.map((other, index) => {
      const [one] = found[index] ?? []
      const entries =
        one?.decisions.map((decision) => entry({ ...decision, detail: {}, status: 'unknown' })) ?? []
      return other.ledger.commit({ statements: one?.statements ?? [], entries })
    }),
  )
  t.same(settled.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  t.same(await lookAt(91_000), [[], []])
  const { rows } = await raw(
    url,
    "select status from audit_rows where request_id = 'req_open' order by status",
  )
  t.same(rows, [{ status: 'allowed' }, { status: 'unknown' }])
})

t.test(
  'a replica that stops with no call open is closed by itself, and one with a call open is not',
  async (t) => {
    const url = await server.migrated()
    const [one, other] = await Promise.all([openDatabase(url), openDatabase(url)])
    t.teardown(() => Promise.all([one.close(), other.close()]))
    const [whole, open] = [
      await openLedger({ database: one, version: VERSION }),
      await openLedger({ database: other, version: VERSION }),
    ]
    for (const ledger of [whole, open]) {
      const call = entry({ request_id: `req_${ledger === whole}` })
      await ledger.commit({ entries: [call] })
      if (ledger === whole) await ledger.commit({ entries: [{ ...call, status: 'success' }] })
      await ledger.commit({ entries: [entry({ request_id: null, status: 'denied' })] })
    }
    const { stream } = whole.head ?? { stream: '' }
    await Promise.all([whole.close(), open.close()])
    const { rows } = await raw(url, 'select stream from audit_streams where closed_at is not null')
    t.same(rows, [{ stream }])
  },
)

t.test(
  'E6 a machine whose clock is minutes off the server of all is told so, and opens no stream',
  async (t) => {
    const client = new Client(await server.fresh())
    await client.connect()
    t.teardown(() => client.end())
    const off = (ms: number) => clockProblem(client, () => Date.now() + ms)
    for (const ms of [0, 200_000, -200_000]) t.equal(await off(ms), null, `${ms} ms`)
    t.match(await off(300_000), /is 300 s ahead of the database's: set both by a time service/)
    t.match(await off(-86_400_000), /is 86400 s behind the database's/)
  },
)

t.test(
  'docs/ledger.md#table: a row without a leaf gives the bytes that were hashed, whatever it says',
  async (t) => {
    const url = await server.migrated()
    const { database, ledger } = await replica(t, url)
    const of = fc.tuple(anyEntry, fc.boolean()).map(([made, isCommon]) => ({
      ...made,
      // Others keep their leaf: they are no hashes.
      ...(isCommon && {
        config_digest: 'cd'.repeat(32),
        cert_thumbprint: made.tool === null ? null : 'ab'.repeat(32),
      }),
    }))
    const entries = fc.sample(of, 600)
    const sealed: SealedRow[] = []
    for (const made of entries) sealed.push(...(await ledger.commit({ entries: [made] })))
    const stream = sealed[0]?.stream ?? ''
    let previous = GENESIS_HASH
    const leaves = entries.map((made, index) => {
      const leaf = assembleLeaf(draftOf(made, { stream, version: VERSION }), previous, index + 1)
      previous = hashOf(leaf)
      return leaf
    })
    t.same(
      sealed.map(({ hash }) => hash),
      leaves.map(hashOf),
    )
    t.same(await database.treeRows.leaves(0, 0, 600), leaves)
    const { hashes } = await database.treeRows.hashes(0, 600)
    t.ok(hashes.equals(Buffer.concat(leaves.map(leafHash))), 'hashed where the rows are, too')
    const { rows } = await raw(
      url,
      'select count(*) filter (where leaf is null)::int as columns from audit_rows',
    )
    t.ok(rows[0].columns > 100 && rows[0].columns < 600, `${rows[0].columns} are stored in columns`)
  },
)
