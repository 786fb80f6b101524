import t from 'tap'
import { PendingHandshakes } from '../../../proxy/tls/handshakes.ts'

await t.test('A1: where too many shake hands, the newest of the largest crowd goes', async (t) => {
  const handshakes = new PendingHandshakes(5)
  const ended: string[] = []
  const enter = (address: string, name: string) => handshakes.enter(address, () => void ended.push(name))
  const honest = enter('192.0.2.1', 'honest')
  for (let i = 0; i < 10; i += 1) enter('198.51.100.1', `flood ${i}`)
  t.equal(ended.length, 6)
  t.notOk(ended.includes('honest'))
  t.notOk(ended.includes('flood 0'), 'the oldest of them may still come to its end')
  enter('203.0.113.1', 'another')
  t.notOk(ended.includes('another'), 'a newcomer from elsewhere takes the place of one of the crowd')
  honest()
  honest()
  enter('203.0.113.2', 'one more')
  t.equal(ended.length, 7, 'a place that was left is free, and left once')
  handshakes.endAll()
  t.equal(ended.length, 12)
})
