import t from 'tap'
import {
  type BreakerPass,
  type BreakerRule,
  CircuitBreaker,
  type RequestResult,
} from '../../../../proxy/llm/health/breaker.ts'

const RULE: BreakerRule = { failures: 5, rate: 0.5, of: 20, window_s: 30, open_s: 10, most_s: 120 }

function at(rule: Partial<BreakerRule> = {}) {
  const clock = { ms: 1_000_000 }
  const breaker = new CircuitBreaker({ ...RULE, ...rule }, () => clock.ms)
  const ask = (...results: RequestResult[]): void => {
    for (const result of results) breaker.note(breaker.pass() ?? breaker.force(), result)
  }
  const wait = (seconds: number): void => {
    clock.ms += seconds * 1000
  }
  return { breaker, ask, wait }
}

const times = (count: number, result: RequestResult): RequestResult[] =>
  Array.from({ length: count }, () => result)

await t.test('five failures in a row open it, four and a success do not', (t) => {
  const { breaker, ask } = at()
  ask(...times(4, 'failed'), 'good', ...times(4, 'failed'))
  t.equal(breaker.state, 'closed')
  ask('failed')
  t.equal(breaker.state, 'open')
  t.equal(breaker.pass(), null, 'and nobody is let through')
  t.end()
})

await t.test('half of at least twenty requests in thirty seconds open it, half of fewer do not', (t) => {
  const { breaker, ask } = at()
  for (let pair = 0; pair < 9; pair += 1) ask('good', 'failed')
  t.equal(breaker.state, 'closed', 'of 18')
  ask('good', 'failed')
  t.equal(breaker.state, 'open', 'of 20')

  const later = at()
  for (let pair = 0; pair < 9; pair += 1) later.ask('good', 'failed')
  later.wait(31)
  later.ask('good', 'failed')
  t.equal(later.breaker.state, 'closed', 'what is older does not count')
  t.end()
})

await t.test('refusals of requests never open it, however many, nor hide that it fails', (t) => {
  const { breaker, ask } = at()
  ask(...times(1_000, 'refused'))
  t.equal(breaker.state, 'closed')
  ask(...times(4, 'failed'), ...times(100, 'refused'), 'failed')
  t.equal(breaker.state, 'open')
  t.end()
})

await t.test('answers that break off count, though each began well', (t) => {
  const { breaker } = at()
  const pass = breaker.force()
  for (let call = 0; call < 19; call += 1) {
    breaker.note(pass, 'good')
    breaker.note(pass, 'broken_off')
  }
  t.equal(breaker.state, 'closed', 'of 19')
  breaker.note(pass, 'good')
  breaker.note(pass, 'broken_off')
  t.equal(breaker.state, 'open', 'of 20')
  t.end()
})

await t.test('1,000 calls at once find out by one request whether it answers again', (t) => {
  const { breaker, ask, wait } = at()
  ask(...times(5, 'failed'))
  wait(9.999)
  t.equal(breaker.state, 'open')
  wait(0.001)
  t.equal(breaker.state, 'half_open')
  const passes = Array.from({ length: 1_000 }, () => breaker.pass()).filter((pass) => pass !== null)
  t.equal(passes.length, 1)
  const [probe] = passes
  if (!probe) throw new Error('no request was let through')
  breaker.note(probe, 'good')
  t.equal(breaker.state, 'closed')
  ask(...times(4, 'failed'))
  t.equal(breaker.state, 'closed', 'and it counts from nothing')
  t.end()
})

await t.test('each probe that fails doubles the time, up to the most', (t) => {
  const { breaker, ask, wait } = at()
  ask(...times(5, 'failed'))
  for (const seconds of [10, 20, 40, 80, 120, 120]) {
    wait(seconds - 0.001)
    t.equal(breaker.pass(), null, `left alone for ${seconds} s`)
    wait(0.001)
    ask('failed')
  }
  wait(120)
  ask('refused')
  t.equal(breaker.state, 'closed', 'an answer of whatever kind shows that it lives')
  ask(...times(5, 'failed'))
  wait(10)
  t.equal(breaker.state, 'half_open', 'and the time begins again at ten')
  t.end()
})

await t.test('a probe that hangs, or whose caller leaves, does not leave it half open for ever', (t) => {
  const { breaker, ask, wait } = at()
  ask(...times(5, 'failed'))
  wait(10)
  const hanging = breaker.pass()
  t.ok(hanging)
  wait(9.999)
  t.equal(breaker.pass(), null)
  wait(0.001)
  const second = breaker.pass()
  t.ok(second, 'another one may try after the time of one opening')
  if (!hanging || !second) throw new Error('no request was let through')
  breaker.note(second, 'failed')
  breaker.note(hanging, 'failed')
  wait(20)
  t.equal(breaker.state, 'half_open', 'and a late failure counts no second time')
  t.end()
})

await t.test('results of requests from before it opened do not count', (t) => {
  const { breaker, ask } = at()
  const old = breaker.force()
  ask(...times(5, 'failed'))
  breaker.note(old, 'good')
  t.equal(breaker.state, 'open')
  breaker.note(breaker.force(), 'good')
  t.equal(breaker.state, 'closed', 'one that was asked nevertheless and answers does')
  t.end()
})

await t.test('a limit that the provider states holds for its time, at most the longest', (t) => {
  const { breaker, wait } = at()
  breaker.limit(3_000)
  t.equal(breaker.state, 'open')
  wait(3)
  t.equal(breaker.state, 'closed')
  breaker.limit(86_400_000)
  wait(120)
  t.equal(breaker.state, 'closed')
  t.end()
})

/** The rule in plain words, over the whole history. */
class PlainBreaker {
  era = 0
  openFor = 0
  openFrom: number | null = null
  probedAt: number | null = null
  history: { step: number; result: RequestResult }[] = []

  state(now: number): string {
    if (this.openFrom === null) return 'closed'
    return now < this.openFrom + this.openFor ? 'open' : 'half_open'
  }

  pass(now: number): BreakerPass | null {
    const state = this.state(now)
    if (state === 'closed') return { era: this.era, isProbe: false }
    if (state === 'open' || (this.probedAt !== null && now < this.probedAt + this.openFor)) return null
    this.probedAt = now
    return { era: this.era, isProbe: true }
  }

  note(rule: BreakerRule, pass: BreakerPass, result: RequestResult, now: number): void {
    if (pass.era !== this.era) return
    const fails = result === 'failed' || result === 'broken_off'
    if (this.openFrom !== null) {
      if (!fails) this.#turn(null, 0)
      else if (pass.isProbe) this.#turn(now, Math.min(this.openFor * 2, rule.most_s * 1000))
      return
    }
    const step = Math.floor(now / (rule.window_s * 100))
    if (result !== 'refused') this.history.push({ step, result })
    const inWindow = this.history.filter((one) => one.step > step - 10)
    const failed = inWindow.filter((one) => one.result !== 'good').length
    const requests = Math.max(failed, inWindow.filter((one) => one.result !== 'broken_off').length)
    const sinceGood = this.history.length - 1 - this.history.findLastIndex((one) => one.result === 'good')
    const isFailing = sinceGood >= rule.failures || (requests >= rule.of && failed >= rule.rate * requests)
    if (fails && isFailing) this.#turn(now, rule.open_s * 1000)
  }

  #turn(from: number | null, ms: number): void {
    this.era += 1
    this.openFrom = from
    this.openFor = ms
    this.probedAt = null
    this.history = []
  }
}

/** Numbers below 1, the same for the same seed (a linear congruence). */
function numbersOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

const RESULTS: readonly RequestResult[] = ['good', 'refused', 'failed', 'broken_off']

await t.test('over random histories its state follows the rule', (t) => {
  let [turns, differing] = [0, 0]
  for (let seed = 1; seed <= 300; seed += 1) {
    const random = numbersOf(seed)
    const rule = { ...RULE, failures: 2 + Math.floor(random() * 6), of: 4 + Math.floor(random() * 20) }
    let now = random() * 1e7
    const breaker = new CircuitBreaker(rule, () => now)
    const plain = new PlainBreaker()
    const failing = random()
    const underWay: { pass: BreakerPass; plain: BreakerPass }[] = []
    for (let step = 0; step < 400; step += 1) {
      now += random() < 0.1 ? random() * 20_000 : random() * 800
      if (breaker.state !== plain.state(now)) differing += 1
      if (random() < 0.5) {
        const [one, other] = [breaker.pass(), plain.pass(now)]
        if ((one === null) !== (other === null) || one?.isProbe !== other?.isProbe) differing += 1
        if (one && other) underWay.push({ pass: one, plain: other })
        // Some hang for ever.
        if (underWay.length > 30) underWay.shift()
        continue
      }
      const [ended] = underWay.splice(Math.floor(random() * underWay.length), 1)
      if (!ended) continue
      const result = random() < failing ? 'failed' : (RESULTS[Math.floor(random() * 4)] ?? 'good')
      const era = plain.era
      breaker.note(ended.pass, result)
      plain.note(rule, ended.plain, result, now)
      turns += plain.era - era
    }
  }
  t.equal(differing, 0)
  t.ok(turns > 1_000, `it opened and closed ${turns} times`)
  t.end()
})
