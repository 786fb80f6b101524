import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { Client } from 'pg'
import t, { type Test } from 'tap'
import { callIsOpen } from '../../../db/ledger/record/open-call.ts'
import {
  BEGIN_CHANGES,
  BEGIN_DECISIONS,
  LOCK_HOLDERS,
  STREAM_CLASS,
  streamKey,
  TERMINATE_LOCK_HOLDER,
} from '../../../db/postgres/ledger/locks.ts'
import { AbandonedStreams } from '../../../db/postgres/ledger/unfinished.ts'
import { insertPrincipal, touchLastSeen } from '../../../db/principals/write.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { type Replica, raw, replica } from '../../support/db/postgres/replica.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'

const server = await cluster()

/** The time in which a call must be answered, and a multiple of it for a machine that is busy. ms. */
const ANSWERED_MS = 2_000 * 3
/** The time in which service must resume unaided, likewise. ms. */
const RESUMED_MS = 5_000 * 3

const decide = ({ ledger }: Replica) => ledger.commit({ entries: [entry()] })
const change = ({ ledger }: Replica) =>
  ledger.commit({
    statements: [{ sql: 'update settings set value = value', parameters: [] }],
    entries: [entry()],
  })

/** A session of somebody's own, without any limit of time. */
async function session(t: Test, url: string): Promise<Client> {
  const client = new Client(url)
  client.on('error', () => {})
  await client.connect()
  t.teardown(() => client.end().catch(() => {}))
  return client
}

/** Says why a commit was refused, and that it was within its time. */
async function refused(t: Test, commit: () => Promise<unknown>): Promise<void> {
  const since = performance.now()
  await t.rejects(commit(), { code: 'unavailable' })
  t.ok(performance.now() - since < ANSWERED_MS, 'nobody waits for long')
}

async function untilItGoes(commit: () => Promise<unknown>): Promise<void> {
  const since = performance.now()
  for (;;) {
    const went = await commit().then(
      () => true,
      () => false,
    )
    if (went) break
    if (performance.now() - since > RESUMED_MS) throw new Error('service did not resume')
  }
}

const as = (url: string, role: string): string => url.replace('user=postgres', `user=${role}`)
const setUp = (url: string) => raw(url, 'grant all on schema public to gateway')
await raw(server.url('postgres'), 'create role gateway login; create role somebody login')

t.test(
  'F-25 who holds the lock of authority and cannot be ended keeps calls out, and none waiting',
  async (t) => {
    const url = await server.fresh()
    await setUp(url)
    const one = await replica(t, as(url, 'gateway'))
    await decide(one)
    const holder = await session(t, as(url, 'somebody'))
    await holder.query(BEGIN_CHANGES)
    for (let round = 0; round < 3; round += 1) await refused(t, () => decide(one))
    await refused(t, () => change(one))
    // Those that come while one batch waits are in the next one.
    await Promise.all([refused(t, () => decide(one)), refused(t, () => decide(one))])
    await holder.query('rollback')
    await decide(one)
    await change(one)
    await holder.query(BEGIN_DECISIONS)
    await decide(one)
    await refused(t, () => change(one))
    await decide(one)
  },
)

for (const [how, begin] of [
  ['alone', BEGIN_CHANGES],
  ['with others', BEGIN_DECISIONS],
] as const) {
  t.test(
    `F-25 a session of the gateways that holds the lock ${how} for longer than any batch is ended`,
    async (t) => {
      const url = await server.fresh()
      await setUp(url)
      const one = await replica(t, as(url, 'gateway'))
      const holder = await session(t, as(url, 'gateway'))
      const ended = once(holder, 'error')
      await holder.query(begin)
      await untilItGoes(() => change(one))
      await ended
      await decide(one)
    },
  )
}

t.test(
  'F-25 a replica that is frozen in the middle of a change does not stop the others, and goes on',
  async (t) => {
    const url = await server.migrated()
    const one = await replica(t, url)
    const child = spawn(
      process.execPath,
      [join(import.meta.dirname, '../../support/db/postgres/change-for-ever.ts'), url],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    )
    t.teardown(() => void child.kill('SIGKILL'))
    await once(child.stdout, 'data')
    for (;;) {
      child.kill('SIGSTOP')
      if (await isChanging(url)) break
      child.kill('SIGCONT')
      await once(child.stdout, 'data')
    }
    await untilItGoes(() => decide(one))
    await untilItGoes(() => change(one))
    child.kill('SIGCONT')
    for await (const line of child.stdout.setEncoding('utf8')) if (/^changed$/m.test(line)) break
    child.kill('SIGKILL')
    await once(child, 'exit')
    const { rows } = await raw(url, 'select count(distinct stream)::int as streams from audit_rows')
    t.match(rows, [{ streams: 2 }], 'it has written its own stream on')
  },
)

/** Whether a session holds the lock alone, and waits for its client. */
async function isChanging(url: string): Promise<boolean> {
  const { rows } = await raw(
    url,
    `select 1 from pg_locks join pg_stat_activity using (pid) where locktype = 'advisory' and mode = 'ExclusiveLock'
      and granted and classid = ${STREAM_CLASS + 1} and state = 'idle in transaction'`,
  )
  return rows.length > 0
}

/** Two replicas, of which the session of the first one is gone; and what the other one finds left open of it. */
async function cutOff(t: Test, entries: Parameters<Replica['ledger']['commit']>[0]['entries']) {
  const url = await server.migrated()
  const [gone, other] = [await replica(t, url), await replica(t, url)]
  const [sealed] = await gone.ledger.commit({ entries })
  const stream = sealed?.stream ?? ''
  await raw(url, TERMINATE_LOCK_HOLDER, [STREAM_CLASS, streamKey(stream)])
  const looking = await session(t, url)
  const abandoned = new AbandonedStreams('of the other one')
  const look = async (now: number) =>
    (await abandoned.look(looking, now)).find(({ statements: [close] }) => close?.parameters.includes(stream))
  await look(0)
  const left = await look(60_000)
  const close = () =>
    other.ledger.commit({
      statements: left?.statements ?? [],
      entries: left?.decisions.map((decision) => entry({ ...decision, detail: {}, status: 'unknown' })) ?? [],
    })
  return { url, gone, stream, left, close }
}

t.test(
  'F-25 a process whose calls another one has ended goes on, and gives none a second outcome',
  async (t) => {
    const { url, gone, stream, left, close } = await cutOff(t, [entry({ request_id: 'req_open' })])
    t.match(left, { decisions: [{ request_id: 'req_open' }] })
    await close()
    await untilItGoes(() => decide(gone))
    const assertions = [callIsOpen(gone.database, 'req_open')]
    const entries = [entry({ request_id: 'req_open', status: 'success' })]
    await t.rejects(gone.ledger.commit({ assertions, entries }), { code: 'stale' })
    const { rows } = await raw(url, 'select recovered, closed_at from audit_streams where stream = $1', [
      stream,
    ])
    t.same(rows, [{ recovered: 0, closed_at: null }], 'whoever dies later is looked after again')
  },
)

t.test('F-25 a process that had no call open goes on, though it was taken for gone', async (t) => {
  const { url, gone, stream, left, close } = await cutOff(t, [entry({ status: 'denied' })])
  t.match(left, { decisions: [] })
  await close()
  await untilItGoes(() => decide(gone))
  t.match(gone.ledger.head, { stream, seq: 2 })
  const { rows } = await raw(url, 'select closed_at from audit_streams where stream = $1', [stream])
  t.same(rows, [{ closed_at: null }], 'whoever dies later is looked after again')
})

t.test('F-25 the calls of a process that has come back meanwhile are not ended', async (t) => {
  const { gone, close } = await cutOff(t, [entry({ request_id: 'req_open' })])
  await untilItGoes(() => gone.ledger.commit({ entries: [entry({ request_id: 'req_next' })] }))
  await t.rejects(close(), { code: 'conflict' })
  await gone.ledger.commit({ entries: [entry({ request_id: 'req_open', status: 'success' })] })
})

t.test('F-25 a process that writes nothing for long finds out that its session is gone', async (t) => {
  const url = await server.migrated()
  const { ledger } = await replica(t, url)
  const [sealed] = await ledger.commit({ entries: [entry()] })
  const lock = [STREAM_CLASS, streamKey(sealed?.stream ?? '')]
  await raw(url, TERMINATE_LOCK_HOLDER, lock)
  for (;;) {
    await ledger.recover(0, 'cd'.repeat(32))
    const { rows } = await raw(url, `select pid ${LOCK_HOLDERS}`, lock)
    if (rows.length > 0) break
  }
  t.pass('it holds its stream again')
})

t.test('no batch waits for another process that notes that the same principal was seen', async (t) => {
  const url = await server.migrated()
  const { database, ledger } = await replica(t, url)
  const [type, id] = ['agent', 'acme::busy'] as const
  await ledger.commit({
    statements: [
      insertPrincipal(database, {
        ...{ type, id, ref: id, name: 'busy', displayName: null, capabilities: [] },
        ...{ enrollmentMethod: 'minted', spiffeId: null, dpopJkt: null, federated: false, at: AT },
      }),
    ],
    entries: [entry()],
  })
  const seen = async () => (await raw(url, 'select last_seen_at from internal_agents')).rows[0]?.last_seen_at
  const touch = () =>
    ledger.commit({ statements: [touchLastSeen(database, { type, id, at: AT })], entries: [entry()] })
  const held = await session(t, url)
  await held.query('begin')
  await held.query("update internal_agents set last_seen_at = '2020-01-01T00:00:00.000Z'")
  await touch()
  t.equal(await seen(), null, 'the other one notes it')
  await held.query('commit')
  await touch()
  t.equal(await seen(), new Date(AT).toISOString())
})
