import t from 'tap'
import { DatabaseUnavailable } from '../../db/support/unavailable.ts'
import { StrangersLine } from '../../plugins/strangers-line.ts'
import { refused } from '../support/refused.ts'

await t.test(
  'H2: strangers have half of the connections to the database, whoever was found has all',
  async (t) => {
    const line = new StrangersLine(200)
    const asked: {
      readonly name: string
      readonly answer: (found: string | undefined) => void
      readonly fail: (error: Error) => void
    }[] = []
    const fronted = line.fronting(
      (name: string) => name,
      (name) => new Promise<string | undefined>((answer, fail) => asked.push({ name, answer, fail })),
    )
    const ask = (name: string) => Promise.resolve(fronted(name))
    const turn = () => new Promise((resolve) => setImmediate(resolve))
    const first = ask('bot')
    asked[0]?.answer('found')
    t.equal(await first, 'found')

    const strangers = Array.from({ length: 10 }, (_, index) => ask(`stranger-${index}`))
    await turn()
    t.equal(asked.length - 1, 4, 'four are asked, six wait')
    const again = ask('bot')
    t.equal(asked.at(-1)?.name, 'bot', 'who was found once is asked at once')
    asked.at(-1)?.answer('found')
    t.equal(await again, 'found')
    for (let next = 1; next < asked.length || asked.length < 12; next += 1) {
      asked[next]?.answer(undefined)
      await turn()
    }
    t.same(new Set(await Promise.all(strangers)), new Set([undefined]))

    const held = Array.from({ length: 4 + 4_096 }, (_, index) => ask(`more-${index}`))
    await t.rejects(ask('one-more'), refused('overloaded'))
    const ends = Promise.allSettled(held)
    const late = held.slice(4)
    await t.rejects(Promise.all(late.slice(0, 1)), refused('overloaded'), 'nobody waits longer than it may')
    for (let next = 0; next < asked.length; next += 1) {
      asked[next]?.answer(undefined)
      await turn()
    }
    await ends
    const before = asked.length
    const flaky = Promise.allSettled(Array.from({ length: 7 }, (_, index) => ask(`flaky-${index}`)))
    await turn()
    asked[before]?.answer(undefined)
    await turn()
    asked[before + 1]?.fail(new DatabaseUnavailable('one connection broke'))
    for (let next = before + 2; next < asked.length; next += 1) {
      asked[next]?.answer(undefined)
      await turn()
    }
    const fates = (await flaky).map(({ status }) => status === 'fulfilled')
    t.same(fates, [true, false, true, true, true, true, true], 'nobody fails with one connection')
    const away = Array.from({ length: 6 }, (_, index) => ask(`away-${index}`))
    const failing = Promise.allSettled(away)
    await turn()
    asked.at(-1)?.fail(new DatabaseUnavailable('it is away'))
    for (const waiting of away.slice(4))
      await t.rejects(waiting, { message: 'it is away' }, 'nor for nothing')
    for (const { answer } of asked) answer(undefined)
    await failing
    const fails = line.fronting(
      (name: string) => name,
      () => Promise.reject(new Error('the database is away')),
    )
    for (let one = 0; one < 6; one += 1)
      await t.rejects(
        Promise.resolve(fails('x')),
        { message: 'the database is away' },
        'a fault leaves its place',
      )
  },
)
