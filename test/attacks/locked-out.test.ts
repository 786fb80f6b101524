import t from 'tap'
import { Refusal } from '../../plugins/refusal.ts'
import { adminSecret } from '../../plugins/secrets/admin-secret.ts'
import { hashSecret } from '../../plugins/secrets/hash.ts'
import { RecognisedSenders } from '../../plugins/secrets/recognised-senders.ts'
import { FailureThrottle } from '../../plugins/secrets/throttle.ts'
import { type Answered, type TestGateway, testGateway } from '../support/gateway.ts'
import { arrival } from '../support/plugins/arrival.ts'
import { secretOf } from '../support/plugins/operators.ts'
import { eventually } from '../support/settled.ts'

const SECRET = 'the-secret-of-the-operator'
const OTHER = 'another-secret-of-the-operator'
const [STORED, STORED_OTHER] = await Promise.all([SECRET, OTHER].map(hashSecret))

/** The plugin by itself, on addresses and a clock of the test's own. */
function door(stored = STORED ?? '', environment = '', recognised?: RecognisedSenders) {
  let hash = stored
  let now = 0
  const plugin = adminSecret(
    { ...secretOf(() => hash, environment), ...(recognised && { recognised }) },
    new FailureThrottle(() => now),
  )
  return {
    /** What became of it: `in`, or the reason of the refusal. */
    ask: async (secret: string | null, remoteAddress = '192.0.2.1'): Promise<string> => {
      const headers = secret === null ? {} : { 'x-admin-secret': secret }
      try {
        await plugin.admit(arrival({ headers, remoteAddress }))
        return 'in'
      } catch (error) {
        return error instanceof Refusal ? error.reason : String(error)
      }
    },
    store: (next: string): void => {
      hash = next
    },
    wait: (ms: number): void => {
      now += ms
    },
  }
}

type Door = ReturnType<typeof door>

/** Guesses until the sender is silenced. */
async function exhaust({ ask }: Door, address?: string): Promise<void> {
  for (let guess = 0; guess < 10; guess += 1) {
    t.equal(await ask(`wrong ${guess}${'x'.repeat(80)}`, address), 'admin_secret_invalid')
  }
}

await t.test('D2 requests without a secret cost the operator nothing', async (t) => {
  for (const nothing of [null, '']) {
    const at = door()
    for (let asked = 0; asked < 50; asked += 1) t.equal(await at.ask(nothing), 'admin_secret_invalid')
    t.equal(await at.ask(SECRET), 'in')
  }
  const gateway = await testGateway(t)
  const none = (): Promise<Answered> => gateway.call(null, 'GET', '/v1/admin/agents')
  const answers = await Promise.all(Array.from({ length: 20 }, none))
  t.same(new Set(answers.map(({ status }) => status)), new Set([403]))
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200)
})

await t.test('D2 a secret that has held passes before throttle and line', async (t) => {
  const at = door()
  t.equal(await at.ask(SECRET), 'in')
  await exhaust(at)
  t.equal(await at.ask('wrong'), 'admin_throttled')
  t.equal(await at.ask(SECRET), 'in', 'from the very address of the attacker')
  t.equal(await at.ask('wrong'), 'admin_throttled', 'who waits all the same')
  t.equal(await at.ask(null), 'admin_secret_invalid', 'a missing one is no guess')
  at.wait(3_600_000)
  const guesses = Array.from({ length: 40 }, (_, i) => at.ask(`guess ${i}`, `198.51.100.${i}`))
  t.equal(await at.ask(SECRET), 'in', 'while forty addresses fill the line, and an hour later')
  t.ok((await Promise.all(guesses)).includes('overloaded'))
})

await t.test(
  'H18: an operator at a known address is verified while others fill the line, after a start too',
  async (t) => {
    let kept: string | undefined
    const store = {
      read: async () => kept,
      write: (text: string): void => {
        kept = text
      },
    }
    const started = async () => {
      const recognised = new RecognisedSenders(Buffer.alloc(32), store, () => 0)
      await recognised.load()
      return door(STORED, '', recognised)
    }
    const guessing = (at: Door) =>
      Promise.all(Array.from({ length: 8 }, (_, i) => at.ask(`guess ${i}`, `198.51.100.${i}`)))
    const first = await started()
    t.equal(await first.ask(SECRET, '192.0.2.1'), 'in')
    await eventually(
      () => kept,
      (text) => text !== undefined,
    )
    t.notMatch(kept ?? '', /192|c0000201/, 'no address is readable there')

    const again = await started()
    const guesses = guessing(again)
    t.equal(await again.ask(SECRET, '192.0.2.1'), 'in')
    t.ok((await guesses).includes('overloaded'))
    t.equal(
      await again.ask('wrong', '192.0.2.1'),
      'admin_secret_invalid',
      'a wrong one is wrong from there too',
    )

    const other = await started()
    const more = guessing(other)
    t.equal(await other.ask(SECRET, '192.0.2.9'), 'overloaded', 'nobody else has that line')
    await more
  },
)

await t.test('H18: the addresses that are kept are few, and those that came last', async (t) => {
  let kept = ''
  let clock = 0
  const store = {
    read: async () => kept || undefined,
    write: (text: string): void => {
      kept = text
    },
  }
  const senders = new RecognisedSenders(Buffer.alloc(32), store, () => clock)
  for (let i = 0; i < 200; i += 1) {
    clock += 1
    senders.note(`192.0.2.${i}`)
    await new Promise(setImmediate)
  }
  t.equal(JSON.parse(kept).length, 64)
  t.same([senders.has('192.0.2.0'), senders.has('192.0.2.199')], [false, true])
  clock += 31 * 86_400_000
  t.notOk(senders.has('192.0.2.199'), 'nor who came a month ago')
  kept = '{"not": "a list"'
  const unreadable = new RecognisedSenders(Buffer.alloc(32), store, () => clock)
  await unreadable.load()
  t.notOk(unreadable.has('192.0.2.199'), 'what cannot be read is as nothing')
})

await t.test('D2 the same for a secret of the environment', async (t) => {
  const at = door('', SECRET)
  t.equal(await at.ask(SECRET), 'in')
  await exhaust(at)
  t.equal(await at.ask(SECRET), 'in')
  at.store(STORED_OTHER ?? '')
  t.equal(await at.ask(SECRET), 'admin_throttled', 'and it has no say once another one is stored')
})

await t.test('D2 what is remembered ends with the stored hash', async (t) => {
  const at = door()
  t.equal(await at.ask(SECRET), 'in')
  at.store(STORED_OTHER ?? '')
  t.equal(await at.ask(SECRET), 'admin_secret_invalid')
  t.equal(await at.ask(OTHER), 'in')
  t.equal(await at.ask(SECRET), 'admin_secret_invalid')
  at.store(STORED ?? '')
  t.equal(await at.ask(SECRET), 'in', 'what held for this hash holds for it')
})

await t.test('D2 a whole IPv6 network is one sender, and its neighbour another', async (t) => {
  const at = door()
  for (let guess = 0; guess < 10; guess += 1) {
    t.equal(await at.ask('x'.repeat(80), `2001:db8:0:1::${guess.toString(16)}`), 'admin_secret_invalid')
  }
  t.equal(await at.ask(SECRET, '2001:db8:0:1:ffff::1'), 'admin_throttled')
  t.equal(await at.ask(SECRET, '2001:db8:0:2::1'), 'in')
})

/** The attacker sits at the operator's own address: whatever is guessed there is bounded all the same. */
await t.test("D2 guesses at the operator's own address stay bounded", async (t) => {
  const gateway: TestGateway = await testGateway(t)
  t.equal((await gateway.admin('GET', '/v1/admin/agents')).status, 200)
  const guess = (): Promise<Answered> =>
    gateway.call(null, 'GET', '/v1/admin/agents', { headers: { 'x-admin-secret': 'wrong' } })
  for (let tried = 0; tried < 10; tried += 1) t.equal((await guess()).status, 403)
  for (let tried = 0; tried < 10; tried += 1) {
    const { status, headers } = await guess()
    t.equal(status, 429)
    t.equal(headers.connection, 'close', 'the next one costs a handshake')
  }
  const right = await gateway.admin('GET', '/v1/admin/agents')
  t.equal(right.status, 200)
})
