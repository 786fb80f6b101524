import { hash } from 'node:crypto'
import t from 'tap'
import { Refusal } from '../../../../plugins/refusal.ts'
import { mcpThreadPool } from '../../../../proxy/mcp/aside/aside.ts'
import { refused } from '../../../support/refused.ts'

const LIMITS = { maxThreads: 2, lateMs: 60_000, waitMs: 60_000 }

/** Arguments that take some 100 ms to judge, under a schema of which every item costs a thousand steps. */
const COSTLY = JSON.stringify({
  inputSchema: {
    type: 'object',
    properties: { a: { items: { allOf: Array.from({ length: 300 }, () => ({ minLength: 0 })) } } },
  },
})
const long = {
  digest: 'costly',
  definition: COSTLY,
  args: JSON.stringify({ a: Array.from({ length: 5_000 }, () => 'x') }),
}
const short = { digest: 'any', definition: '{"inputSchema":{"type":"object"}}', args: '{"a":1}' }
const FITS = { fault: null, small: true }

t.test('A6: a key waits for its own questions, and no key for another', async (t) => {
  const threads = mcpThreadPool(LIMITS)
  const done: string[] = []
  const ask = async (key: string, asked: typeof long, as: string) => {
    const verdict = await threads.ask('judgeArguments', asked, { key })
    done.push(as)
    return verdict
  }
  const first = Array.from({ length: 6 }, (_, index) => ask('a', long, `a${index}`))
  const others = ['b', 'c'].map((key) => ask(key, short, key))
  t.same(await Promise.all(others), [FITS, FITS])
  t.ok(done.length < 6, `done by then: ${done.join(' ')}`)
  await Promise.all(first)
  t.same(
    done.filter((as) => as.startsWith('a')),
    ['a0', 'a1', 'a2', 'a3', 'a4', 'a5'],
    'in their order',
  )
})

t.test('A6: a question that takes too long is given up, and no other with it', async (t) => {
  const hasty = mcpThreadPool({ ...LIMITS, maxThreads: 1, lateMs: 5 })
  // The first has the time that a thread needs to start.
  await hasty.ask('judgeArguments', short, { key: 'a' })
  const late = hasty.ask('judgeArguments', { ...long, digest: 'late' }, { key: 'a' })
  const next = hasty.ask('judgeArguments', short, { key: 'a' })
  await t.rejects(late, { message: 'the check of MCP messages did not answer within 5 ms' })
  t.same(await next, FITS)
})

t.test('A6: who asks too much at once is refused, and nobody else', async (t) => {
  const threads = mcpThreadPool({ ...LIMITS, maxThreads: 1 })
  const busy = threads.ask('judgeArguments', long, { key: 'a' })
  const waiting = Array.from({ length: 128 }, () => threads.ask('judgeArguments', short, { key: 'b' }))
  await t.rejects(threads.ask('judgeArguments', short, { key: 'b' }), refused('overloaded'))
  t.same(await threads.ask('judgeArguments', short, { key: 'c' }), FITS)
  t.match(await Promise.all([busy, ...waiting]), { length: 129 })

  const impatient = mcpThreadPool({ ...LIMITS, maxThreads: 1, waitMs: 1 })
  const first = impatient.ask('judgeArguments', { ...long, digest: 'first' }, { key: 'a' })
  await t.rejects(impatient.ask('judgeArguments', short, { key: 'b' }), refused('overloaded'))
  t.match(await first, { fault: null })
})

t.test('who has gone does not wait, and is not judged', async (t) => {
  const threads = mcpThreadPool({ ...LIMITS, maxThreads: 1 })
  const busy = threads.ask('judgeArguments', long, { key: 'a' })
  const gone = new AbortController()
  const waiting = threads.ask('judgeArguments', short, { key: 'b', signal: gone.signal })
  gone.abort(new Refusal('client_gone'))
  await t.rejects(waiting, refused('client_gone'))
  await t.rejects(
    threads.ask('judgeArguments', short, { key: 'b', signal: gone.signal }),
    refused('client_gone'),
  )
  await busy
})

t.test('what a task throws is thrown here: a refusal as one, anything else with its sentence', async (t) => {
  const threads = mcpThreadPool({ ...LIMITS, maxThreads: 1 })
  const asker = { key: 'a' }
  const member = 'arguments'
  const salt = '00'.repeat(16)
  await t.rejects(
    threads.ask(
      'readParams',
      { params: '{"arguments":{"a":9007199254740993}}', member, without: [], salt },
      asker,
    ),
    refused('mcp_params_invalid', {
      message: 'arguments hold an integer beyond ±(2^53-1): send it as a string.',
    }),
  )
  const broken = { bytes: Buffer.from('{'), member: 'tools', prefix: '' }
  await t.rejects(threads.ask('listItems', broken, asker), { message: /a message is not strict JSON$/ })
})

const SALT = Buffer.from('salt').toString('hex')

t.test('parameters are read by what they say, not by how it is written', async (t) => {
  const threads = mcpThreadPool({ ...LIMITS, maxThreads: 1 })
  const read = (params: string | Uint8Array, member: 'arguments' | null = 'arguments') =>
    threads.ask('readParams', { params, member, without: [], salt: SALT }, { key: 'a' })
  const plain = await read(Buffer.from('{"name":"x","arguments":{"b":1.0,"a":2}}'))
  const text = '{"a":2,"b":1}'
  const digests = { sha256: hash('sha256', text), commitment: hash('sha256', `salt${text}`) }
  t.match(plain, { bytes: text.length, ...digests })
  t.same([...(plain?.spans.keys() ?? [])], ['name', 'arguments'])
  t.equal(await read(Buffer.from('{"arguments":{"\\u0062":1,"a":2}}')), null, 'bytes with an escaped name')
  t.equal((await read('{"arguments":{"b":1,"a":2}}'))?.sha256, plain?.sha256)
  t.match(await read('{"arguments":{"\\"":1}}'), { bytes: 8 }, 'text whose escapes must be')
  await t.rejects(read('{"arguments":{"\\u0062":1}}'), refused('mcp_params_invalid'), 'text that is not anew')
  t.equal((await read('{"a":2,"_meta":{"x":1},"b":1}', null))?.sha256, plain?.sha256)
  t.match(await read('{"name":"x"}'), { bytes: 2 }, 'absent arguments are an empty object')
  const many = Object.fromEntries(Array.from({ length: 1_001 }, (_, index) => [`p${index}`, 1]))
  await t.rejects(read(JSON.stringify(many), null), refused('mcp_params_invalid'))
})
