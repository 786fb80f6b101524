import t from 'tap'
import { targetUrls } from '../../../plugins/dpop/dpop.ts'

await t.test('D-12 a proof that comes before all listeners are open spoils none that comes after', (t) => {
  const baseUrls: string[] = []
  const urls = targetUrls(() => baseUrls)
  t.strictSame([...urls('/v1/models')], [])
  baseUrls.push('https://localhost:9443')
  t.strictSame([...urls('/v1/models')], ['https://localhost:9443/v1/models'])
  t.equal(urls('/v1/models'), urls('/v1/models'), 'and is made once')
  t.end()
})
