import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { scratch } from '../support/gateway.ts'
import { run } from '../support/run.ts'
import { ATTACK_NAMES } from './attacks/attacks.ts'
import { randomOf } from './attacks/target.ts'
import { schedule } from './schedule.ts'
import { type Found, judge } from './verdict.ts'

await t.test(
  'a short siege serves honest callers, finds the ledger whole and leaves nothing behind',
  async (t) => {
    const directory = await scratch(t)
    const file = join(directory, 'found.json')
    const args = ['--seconds', '8', '--rate', '40', '--only', 'no-tls,heads,signals', '--seed', '3']
    // How long a call takes is the machine's: other tests run beside this one.
    const { code, out, err } = await run('test/siege/main.ts', [
      ...args,
      '--p99',
      '9000',
      '--dir',
      directory,
      '--json',
      file,
    ])
    t.equal(code, 0, out + err)
    t.match(out, /^yes {2}the ledger is whole: \d+ rows/m)
    t.match(out, /^yes {2}each honest answer is in the ledger: (\d+) of \1$/m)
    t.match(err, / no-tls| heads| signals/, 'progress is told')
    const found = JSON.parse(await readFile(file, 'utf8'))
    t.strictSame(Object.keys(found.tries).toSorted(), ['heads', 'no-tls', 'signals'])
    for (const kind of Object.values<{ served: number }>(found.kinds)) t.ok(kind.served > 0)
    t.strictSame(await readdir(directory), ['found.json'])
  },
)

await t.test('what is no attack is refused before anything is started', async (t) => {
  const { code, err } = await run('test/siege/main.ts', ['--only', 'chains,rain'])
  t.equal(code, 1)
  t.match(err, /^sallyport: --only must be of chains, .*, got "rain"\n$/)
})

await t.test('every attack has its turn beside another one, and never beside itself', (t) => {
  const turns = schedule(ATTACK_NAMES, 1800, randomOf(1))
  for (const attack of ATTACK_NAMES) {
    const own = turns.filter((turn) => turn.attack === attack)
    t.ok(own.length > 1, attack)
    t.ok(own.every(({ from, to }) => to - from <= 30 && from >= 60 && to <= 1740))
    const times = own.map(({ from }) => from)
    t.equal(new Set(times).size, times.length, `${attack} is not beside itself`)
  }
  t.strictSame(schedule(ATTACK_NAMES, 1800, randomOf(1)), turns, 'the same seed plans the same')
  const short = schedule(ATTACK_NAMES, 20, randomOf(2)).map(({ attack }) => attack)
  t.strictSame(new Set(short), new Set(ATTACK_NAMES))
  t.equal(schedule(['chains'], 10, randomOf(3)).length, 1)
  t.end()
})

const HONEST = { served: 10_000, failed: 0, p50: 5, p99: 50, longest: 90, faults: {} }
const samplesOf = (rss: readonly number[]): Found['samples'] =>
  rss.map((rssMb, i) => ({ at: i, attacks: [], honest: HONEST, loop: null, rssMb, rows: i }))
const GOOD: Found = {
  seconds: 600,
  seed: 1,
  samples: samplesOf(Array.from({ length: 60 }, () => 300)),
  kinds: { json: HONEST },
  tries: { chains: 5 },
  ledger: {
    verdict: { ok: true, rows: 20_000, streams: 1, open_decisions: 0 },
    unbalanced: 0,
    served: 10_000,
    unrecorded: 0,
    archived: 40_000,
    faults: [],
  },
}

await t.test('a siege fails by whatever did not hold', (t) => {
  const wrong = (change: Partial<Found>): readonly string[] =>
    judge({ ...GOOD, ...change }, 250).flatMap(({ what, holds }) => (holds === false ? [what] : []))
  const calls = (more: object): Partial<Found> => ({ kinds: { json: { ...HONEST, ...more } } })
  const ledger = (more: object): Partial<Found> => ({ ledger: { ...GOOD.ledger, ...more } })
  t.strictSame(wrong({}), [])
  t.strictSame(wrong(calls({ failed: 11 })), ['honest callers are served'])
  t.strictSame(wrong(calls({ failed: 10 })), [])
  t.strictSame(wrong({ kinds: {} }), ['honest callers are served'])
  t.strictSame(wrong(calls({ p99: 251 })), ['p99 of each kind is at most 250 ms'])
  const revoked = { failed: 1, faults: { 'granted and revoked: SERVED AFTER REVOCATION': 1 } }
  t.strictSame(wrong(calls(revoked)), ['none is served after its revocation'])
  t.strictSame(wrong({ samples: samplesOf(Array.from({ length: 60 }, (_, i) => 300 + 6 * i)) }), [
    'memory is flat',
  ])
  t.strictSame(wrong({ seconds: 60, samples: samplesOf([100, 500, 900, 1300]) }), [], 'too short to say')
  t.strictSame(wrong(ledger({ verdict: { ...GOOD.ledger.verdict, ok: false } })), ['the ledger is whole'])
  t.strictSame(wrong(ledger({ faults: ['0-255.zip'] })), ['the ledger is whole'])
  t.strictSame(wrong(ledger({ archived: 0 })), ['old rows are archived meanwhile'])
  t.strictSame(wrong(ledger({ unbalanced: 1 })), ['each allowed row has one outcome'])
  t.strictSame(wrong(ledger({ unrecorded: 1 })), ['each honest answer is in the ledger'])
  t.strictSame(wrong({ tries: { chains: 5, heads: 0 } }), ['each attack was made'])
  t.end()
})
