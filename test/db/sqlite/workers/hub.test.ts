import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Database } from '../../../../db/database.ts'
import { listRows, verifyDatabase } from '../../../../db/ledger/read/read.ts'
import { type Ledger, openLedger } from '../../../../db/ledger/record/ledger.ts'
import { openSqliteDatabase } from '../../../../db/sqlite/database.ts'
import { type Hub, openHub } from '../../../../db/sqlite/workers/hub.ts'
import { openLink } from '../../../../db/sqlite/workers/link.ts'
import { NOTICE_MAX_BYTES } from '../../../../db/support/notices.ts'
import { entry } from '../../../support/db/scratch-ledger.ts'
import { scratch } from '../../../support/gateway.ts'
import { eventually } from '../../../support/settled.ts'

/** A worker, as far as its half of the database goes: the two ends of its channel, in this process. */
interface Worker {
  readonly database: Database
  readonly ledger: () => Promise<Ledger>
  /** Breaks its channel, as its death does. */
  readonly die: () => void
}

interface Stage {
  readonly hub: Hub
  readonly file: string
  readonly join: () => Promise<Worker>
}

async function stage(t: Test): Promise<Stage> {
  const file = join(await scratch(t), 'sallyport.db')
  const hub = await openHub(file)
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const opened: (() => unknown)[] = []
  t.teardown(async () => {
    for (const close of opened) await close()
    server.close()
    await hub.close()
    const database = await openSqliteDatabase(file)
    const verdict = await verifyDatabase(database.kysely)
    await database.close()
    if (!verdict.ok) t.fail('the chain does not verify', verdict)
  })
  let number = 0
  return {
    hub,
    file,
    join: async () => {
      const near = connect((server.address() as { port: number }).port)
      const [far] = (await once(server, 'connection')) as [Socket]
      number += 1
      hub.attach(number, far)
      const database = openLink(near).share(await openSqliteDatabase(file))
      opened.push(() => near.destroy(), database.close)
      const ledger = () => openLedger({ database, version: 'test' })
      return { database, ledger, die: () => near.destroy() }
    },
  }
}

async function ledgersOf(worker: Stage['join'], count: number): Promise<readonly Ledger[]> {
  const ledgers: Ledger[] = []
  while (ledgers.length < count) ledgers.push(await (await worker()).ledger())
  return ledgers
}

const decision = (request: string) => entry({ request_id: request, status: 'allowed' })
const outcome = (request: string) => entry({ request_id: request, status: 'success' })

async function statusesIn({ file }: Stage, request: string): Promise<readonly string[]> {
  const database = await openSqliteDatabase(file)
  const { rows } = await listRows(database.kysely, { order: 'asc', limit: 1000 })
  await database.close()
  return rows.filter(({ request_id: id }) => id === request).map(({ status }) => status)
}

t.test('workers write one chain, each row at a place of its own', async (t) => {
  const { join: worker } = await stage(t)
  const ledgers = await ledgersOf(worker, 3)
  const units = Array.from({ length: 300 }, (_, n) =>
    (ledgers[n % 3] as Ledger).commit({ entries: [decision(`r${n}`), outcome(`r${n}`)] }),
  )
  const sealed = (await Promise.all(units)).flat()
  const places = sealed.map((one) => one.seq).toSorted((one, other) => one - other)
  t.same(
    places,
    Array.from({ length: 600 }, (_, n) => n + 1),
  )
})

t.test('a refused unit of one worker leaves those of the others as they are', async (t) => {
  const { join: worker } = await stage(t)
  const [one, other] = [await (await worker()).ledger(), await (await worker()).ledger()]
  const stale = { assertions: [{ sql: 'select 1 where 0', parameters: [] }], entries: [decision('stale')] }
  const results = await Promise.allSettled([
    one.commit({ entries: [decision('a')] }),
    one.commit(stale),
    other.commit({ entries: [decision('b')] }),
  ])
  t.same(
    results.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled'],
  )
})

t.test('what a worker that died has left open is closed once, by whoever comes', async (t) => {
  const scene = await stage(t)
  const [dying, living] = [await scene.join(), await scene.join()]
  const [first, second] = [await dying.ledger(), await living.ledger()]
  await first.commit({ entries: [decision('ended'), outcome('ended')] })
  await first.commit({ entries: [decision('open')] })
  await second.commit({ entries: [decision('of another')] })
  dying.die()
  // The hub hears of the death behind everything that was sent.
  t.equal(
    await eventually(
      () => second.recover(Date.now(), 'digest'),
      (count) => count > 0,
    ),
    1,
  )
  t.same(await statusesIn(scene, 'open'), ['allowed', 'unknown'])
  const next = await (await scene.join()).ledger()
  t.equal(await next.recover(Date.now(), 'digest'), 0, 'not once more')
  t.same(await statusesIn(scene, 'of another'), ['allowed'], 'who lives ends its own')
  t.same(await statusesIn(scene, 'ended'), ['allowed', 'success'])
})

t.test('what an earlier run left open is closed by one of those who ask at once', async (t) => {
  const scene = await stage(t)
  const dying = await scene.join()
  await (await dying.ledger()).commit({ entries: [decision('open')] })
  dying.die()
  const ledgers = await ledgersOf(scene.join, 2)
  const both = () => Promise.all(ledgers.map((ledger) => ledger.recover(Date.now(), 'digest')))
  const closed = await eventually(both, (counts) => counts.some((count) => count > 0))
  t.same(
    closed.toSorted((one, other) => one - other),
    [0, 1],
  )
  t.same(await statusesIn(scene, 'open'), ['allowed', 'unknown'])
})

t.test('one worker at a time is alone, and one that dies is not alone for ever', async (t) => {
  const { join: worker } = await stage(t)
  const [one, other, third] = [await worker(), await worker(), await worker()]
  const seen: string[] = []
  const release = Promise.withResolvers<void>()
  const first = one.database.alone(async () => {
    seen.push('one begins')
    await release.promise
    seen.push('one ends')
  })
  await eventually(
    () => seen.length,
    (length) => length === 1,
  )
  const second = other.database.alone(async () => void seen.push('other'))
  release.resolve()
  await Promise.all([first, second])
  t.same(seen, ['one begins', 'one ends', 'other'])
  const held = Promise.withResolvers<void>()
  const never = one.database.alone(async () => {
    held.resolve()
    await new Promise(() => {})
  })
  never.catch(() => {})
  await held.promise
  one.die()
  t.equal(await third.database.alone(async () => 'in'), 'in')
})

t.test('workers hear what the others tell, and one of them leads', async (t) => {
  const { hub, join: worker } = await stage(t)
  const [one, other] = [await worker(), await worker()]
  const heard: string[] = []
  one.database.notices.hear('topic', (text) => heard.push(`one ${text}`))
  other.database.notices.hear('topic', (text) => heard.push(`other ${text}`))
  other.database.notices.hear('elsewhere', (text) => heard.push(`elsewhere ${text}`))
  one.database.notices.tell('topic', 'a')
  one.database.notices.tell('topic', 'b')
  await eventually(
    () => heard.length,
    (length) => length === 2,
  )
  t.same(heard, ['other a', 'other b'], 'not who tells')
  t.throws(() => one.database.notices.tell('topic', 'x'.repeat(NOTICE_MAX_BYTES + 1)), RangeError)

  const leading = () => [one, other].map(({ database }) => database.leads('task'))
  t.same(leading(), [false, false], 'nobody, until one is named')
  hub.lead(1)
  t.same(await eventually(leading, ([first]) => first === true), [true, false])
  one.die()
  hub.lead(2)
  t.same(await eventually(leading, ([, second]) => second === true), [false, true])
  t.equal(one.database.notices.listening, false)
})

t.test('without the process above, nothing is written or promised any more', async (t) => {
  const { join: worker } = await stage(t)
  const one = await worker()
  const ledger = await one.ledger()
  await ledger.commit({ entries: [decision('a')] })
  one.die()
  await ledger.failed
  t.equal(ledger.failing, true)
  await t.rejects(ledger.commit({ entries: [decision('b')] }), { code: 'unavailable' })
  await t.rejects(
    one.database.alone(async () => {}),
    /process above this worker is gone/,
  )
})
