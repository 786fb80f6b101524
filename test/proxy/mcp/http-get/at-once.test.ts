import t from 'tap'
import { atOnce } from '../../../../proxy/mcp/http-get/at-once.ts'
import { refused } from '../../../support/refused.ts'

await t.test(
  'no more work is under way than was said, and what ends makes room, whichever way it ends',
  async (t) => {
    const open: PromiseWithResolvers<string>[] = []
    const work = atOnce(2, (name: string) => {
      const one = Promise.withResolvers<string>()
      open.push(one)
      return one.promise.then((end) => name + end)
    })
    const [a, b] = [work('a'), work('b')]
    await t.rejects(work('c'), refused('overloaded'))
    open[0]?.resolve('!')
    t.equal(await a, 'a!')
    open[1]?.reject(new Error('b failed'))
    await t.rejects(b, { message: 'b failed' })
    const again = [work('d'), work('e')]
    await t.rejects(work('f'), refused('overloaded'))
    for (const { resolve } of open.slice(2)) resolve('')
    t.same(await Promise.all(again), ['d', 'e'])
  },
)
