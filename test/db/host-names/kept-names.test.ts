import { setTimeout as wait } from 'node:timers/promises'
import t from 'tap'
import type { HostLookupOptions, ResolvedAddresses } from '../../../db/host-names/ask.ts'
import { HostNameError } from '../../../db/host-names/host-name-error.ts'
import { HostNameCache } from '../../../db/host-names/kept-names.ts'

const answerOf = (address: string, ttlS = 0): ResolvedAddresses => ({
  addresses: [{ address, family: 4 }],
  ttlS,
})

/** Names whose look-ups a test answers itself, on a clock of its own. */
function stage() {
  const asked: (PromiseWithResolvers<ResolvedAddresses> & { host: string; options: HostLookupOptions })[] = []
  let at = 0
  const names = new HostNameCache({
    lookUp: (host, options) => {
      const one = { ...Promise.withResolvers<ResolvedAddresses>(), host, options }
      asked.push(one)
      return one.promise
    },
    now: () => at,
  })
  const resolved = async (host: string): Promise<string> => (await names.resolve(host))[0]?.address ?? ''
  const passes = (ms: number): void => {
    at += ms
  }
  return { names, asked, resolved, passes }
}

await t.test('H2: those who ask for one name at once share one look-up', async (t) => {
  const { asked, resolved } = stage()
  const all = Array.from({ length: 24 }, () => resolved('api.example'))
  t.equal(asked.length, 1)
  asked[0]?.resolve(answerOf('192.0.2.1'))
  t.same(new Set(await Promise.all(all)), new Set(['192.0.2.1']))
})

await t.test(
  'H2: an answer is believed for its time to live, a second at least and 30 at most',
  async (t) => {
    for (const [ttlS, ms] of [
      [0, 1_000],
      [10, 10_000],
      [86_400, 30_000],
    ] as const) {
      const { asked, resolved, passes } = stage()
      const first = resolved('api.example')
      asked[0]?.resolve(answerOf('192.0.2.1', ttlS))
      await first
      passes(ms - 1)
      t.equal(await resolved('api.example'), '192.0.2.1')
      t.equal(asked.length, 1, `${ttlS} s`)
      passes(1)
      const next = resolved('api.example')
      asked[1]?.resolve(answerOf('192.0.2.2', ttlS))
      t.equal(await next, '192.0.2.2', 'the newer one counts at once')
    }
  },
)

await t.test(
  'H2: where no answer comes, the last good one counts for a day, and is soon looked at anew',
  async (t) => {
    const { asked, resolved, passes } = stage()
    const first = resolved('api.example')
    asked[0]?.resolve(answerOf('192.0.2.1'))
    await first
    passes(2_000)
    const silent = resolved('api.example')
    t.equal(await silent, '192.0.2.1', 'after a moment, while it is still being looked up')
    asked[1]?.reject(new HostNameError('api.example', 'ESERVFAIL'))
    await wait(0)
    t.equal(await resolved('api.example'), '192.0.2.1')
    t.equal(asked.length, 2, 'not asked again at once')
    passes(5_000)
    const again = resolved('api.example')
    asked[2]?.reject(new HostNameError('api.example', 'ETIMEOUT'))
    t.equal(await again, '192.0.2.1')
    passes(86_400_000)
    const late = resolved('api.example')
    asked[3]?.reject(new HostNameError('api.example', 'ETIMEOUT'))
    await t.rejects(late, { code: 'ETIMEOUT', message: /api\.example/ })
  },
)

await t.test('H2: a name that is denied is forgotten', async (t) => {
  const { asked, resolved, passes } = stage()
  const first = resolved('api.example')
  asked[0]?.resolve(answerOf('192.0.2.1'))
  await first
  passes(2_000)
  const gone = resolved('api.example')
  asked[1]?.reject(new HostNameError('api.example', 'ENOTFOUND'))
  await t.rejects(gone, { code: 'ENOTFOUND' })
  const broken = resolved('api.example')
  asked[2]?.reject(new HostNameError('api.example', 'ETIMEOUT'))
  await t.rejects(broken, { code: 'ETIMEOUT' }, 'there is no good answer any more')
})

await t.test('H2: so many names at once and no more, while a name that is known goes on', async (t) => {
  const { asked, names, resolved, passes } = stage()
  const known = resolved('api.example')
  asked[0]?.resolve(answerOf('192.0.2.1'))
  await known
  passes(2_000)
  const silent = Array.from({ length: 64 }, (_, index) => resolved(`n${index}.example`))
  await t.rejects(names.resolve('one-more.example'), { code: 'EBUSY' })
  t.equal(await resolved('api.example'), '192.0.2.1')
  for (const { reject, host } of asked) reject(new HostNameError(host, 'ETIMEOUT'))
  await Promise.allSettled(silent)
  const room = resolved('one-more.example')
  asked.at(-1)?.resolve(answerOf('192.0.2.9'))
  t.equal(await room, '192.0.2.9')
})

await t.test('H2: net.connect is told all addresses, or the first', async (t) => {
  const { asked, names } = stage()
  const told = (all: boolean) =>
    new Promise((resolve) => names.lookup('api.example', { all }, (...given) => resolve(given)))
  const first = told(true)
  asked[0]?.resolve(answerOf('192.0.2.1', 10))
  t.same(await first, [null, [{ address: '192.0.2.1', family: 4 }]])
  t.same(await told(false), [null, '192.0.2.1', 4])
})
