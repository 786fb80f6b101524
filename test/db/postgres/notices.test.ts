import t, { type Test } from 'tap'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import { NoticeAssembler, noticePayloads } from '../../../db/postgres/notices.ts'
import { insertPrincipal, setActive, touchLastSeen } from '../../../db/principals/write.ts'
import { AUTHORITY_TOPIC, NOTICE_MAX_BYTES } from '../../../db/support/notices.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { endPresence, raw, replica } from '../../support/db/postgres/replica.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'
import { eventually } from '../../support/settled.ts'

const server = await cluster()

/** A process that hears. */
async function hearing(t: Test, url: string, topic = 'topic') {
  const database = await openDatabase(url)
  t.teardown(() => database.close())
  const heard: string[] = []
  database.notices.on(topic, (text) => heard.push(text))
  await listening(database)
  return { database, heard }
}

const BOT = {
  type: 'agent',
  id: 'acme::bot',
  ref: 'acme::bot',
  name: 'bot',
  displayName: null,
  capabilities: [],
  enrollmentMethod: 'minted',
  spiffeId: null,
  dpopJkt: null,
  federated: false,
  at: AT,
} as const

const listening = ({ notices }: Database): Promise<boolean> =>
  eventually(
    () => notices.listening,
    (is) => is,
  )

t.test(
  'what one process tells the others hear, in order and whole, and it does not hear itself',
  async (t) => {
    const url = await server.migrated()
    const [teller, one, other] = [
      await hearing(t, url),
      await hearing(t, url),
      await hearing(t, url, 'elsewhere'),
    ]
    // Short, longer than one payload, none, beyond ASCII, and as long as may be.
    const texts = [
      'short',
      '0123456789'.repeat(2_000),
      '',
      'ä€𝄞\u2028'.repeat(2_000),
      'x'.repeat(NOTICE_MAX_BYTES),
    ]
    for (const text of texts) teller.database.notices.notify('topic', text)
    await eventually(
      () => one.heard.length,
      (count) => count === texts.length,
    )
    t.same(one.heard, texts)
    t.same(other.heard, [], 'on another topic')
    t.same(teller.heard, [])
    t.throws(() => teller.database.notices.notify('topic', 'x'.repeat(NOTICE_MAX_BYTES + 1)), RangeError)
  },
)

t.test('a text that begins in the middle, or stops there, is not heard', (t) => {
  const [first = '', second = '', third = ''] = noticePayloads('topic', 'x'.repeat(20_000))
  const assembly = new NoticeAssembler()
  t.equal(assembly.take(second), null)
  t.equal(assembly.take(third), null)
  t.equal(assembly.take(first), null)
  t.equal(assembly.take(third), null)
  t.equal(assembly.take('nothing of ours'), null)
  t.same(assembly.take('topic 1/1 text'), { topic: 'topic', text: 'text' })
  t.end()
})

t.test('who listens is in doubt from the end of its session until there is another one', async (t) => {
  const url = await server.migrated()
  const { database, heard } = await hearing(t, url)
  const teller = await hearing(t, url)
  await endPresence(url)
  await eventually(
    () => database.notices.listening,
    (is) => !is,
  )
  t.notOk(database.notices.listening)
  t.ok(await listening(database))
  await listening(teller.database)
  teller.database.notices.notify('topic', 'after')
  await eventually(
    () => heard.length,
    (count) => count === 1,
  )
  t.same(heard, ['after'])
})

t.test('who listens to a server that is frozen, or gone, is in doubt within 1 s', async (t) => {
  const { database } = await hearing(t, await server.migrated())
  const { rows } = await raw(
    server.url('postgres'),
    'select pid from pg_stat_activity where pid <> pg_backend_pid()',
  )
  const all = [server.postmaster(), ...rows.map(({ pid }) => Number(pid))]
  const since = performance.now()
  for (const pid of all) process.kill(pid, 'SIGSTOP')
  try {
    // Looked at when the second is over: whoever looks for the moment finds it late.
    await eventually(
      () => performance.now() - since,
      (ms) => ms >= 1_000,
    )
    t.notOk(database.notices.listening)
  } finally {
    for (const pid of all) process.kill(pid, 'SIGCONT')
  }
  t.ok(await listening(database), 'and listens again behind it')
  await server.stop('immediate')
  await eventually(
    () => database.notices.listening,
    (is) => !is,
  )
  t.notOk(database.notices.listening)
  await server.start()
  t.ok(await listening(database))
})

t.test('each change of authority raises a number and says so, with its commit; a use is none', async (t) => {
  const url = await server.migrated()
  const { database, ledger } = await replica(t, url)
  const other = await hearing(t, url, AUTHORITY_TOPIC)
  await eventually(
    () => other.heard.length,
    (count) => count > 0,
  )
  const number = async () =>
    Number((await raw(url, 'select generation from authority_generation')).rows[0].generation)
  const before = await number()
  const agent = { type: 'agent', id: 'acme::bot', at: AT } as const
  await ledger.commit({ statements: [insertPrincipal(database, BOT)], entries: [entry()] })
  const after = await number()
  t.ok(after > before)
  await eventually(
    () => other.heard.at(-1),
    (heard) => heard === String(after),
  )
  t.equal(other.heard.at(-1), String(after))
  await ledger.commit({ statements: [touchLastSeen(database, { ...agent, at: AT + 1 })], entries: [] })
  t.equal(await number(), after, 'a use')
  const refused = { ...setActive(database, { ...agent, active: false }), changes: 7 }
  await t.rejects(ledger.commit({ statements: [refused], entries: [entry()] }))
  t.equal(await number(), after, 'a change that was rolled back')
})

t.test('what was missed while nobody listened is made up for', async (t) => {
  const url = await server.migrated()
  const { database, heard } = await hearing(t, url, AUTHORITY_TOPIC)
  await raw(url, 'update authority_generation set generation = generation + 41')
  await eventually(
    () => heard.at(-1),
    (number) => Number(number) > 41,
  )
  t.ok(Number(heard.at(-1)) > 41, 'no notice has said it')
  t.ok(database.notices.listening)
})
