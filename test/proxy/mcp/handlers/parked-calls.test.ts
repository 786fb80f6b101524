import t from 'tap'
import {
  MAX_PARKED_BYTES,
  type ParkedCall,
  ParkedCalls,
} from '../../../../proxy/mcp/handlers/parked-calls.ts'

/** Parks calls, and tells which of them were ended since. */
function parking() {
  const calls = new ParkedCalls()
  const ended: string[] = []
  const park = (principalId: string, bytes = 0): string => {
    const call = { principalId, subject: '', bytes, messages: { close: () => ended.push(id) } }
    const id: string = calls.park(call as unknown as ParkedCall)
    return id
  }
  return { calls, park, newlyEnded: () => ended.splice(0) }
}

t.test('if too many calls wait, those of the principal with the most end first', async (t) => {
  const { park, newlyEnded } = parking()
  const first = park('careful')
  const theirs = Array.from({ length: 511 }, (_, at) => [`p${at % 32}`, park(`p${at % 32}`)] as const)
  t.same(newlyEnded(), [])
  const last = park('late')
  const [ended = '', ...more] = newlyEnded()
  t.same(more, [])
  t.notOk([first, last].includes(ended), 'neither the one who has a single one nor the newcomer pays')
  t.equal(theirs.find(([, id]) => id === ended)?.[0], 'p0')
})

t.test('the bytes that waiting calls hold are bounded, and given back', async (t) => {
  const { calls, park, newlyEnded } = parking()
  const small = park('careful', 1_000)
  const big = Array.from({ length: 60 }, (_, at) => park(`p${at % 5}`, MAX_PARKED_BYTES))
  t.same(newlyEnded(), [])
  park('p5', MAX_PARKED_BYTES)
  t.same(newlyEnded(), [big[0]])
  t.ok(calls.take(small))
  t.notOk(calls.take(small), 'once')
  for (const id of big) calls.take(id)
  for (let at = 0; at < 15; at += 1) park('p6', MAX_PARKED_BYTES)
  t.same(newlyEnded(), [])
})
