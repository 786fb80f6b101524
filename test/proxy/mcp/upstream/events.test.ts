import { createParser } from 'eventsource-parser'
import fc from 'fast-check'
import t from 'tap'
import { type MemoryAccount, MemoryBudget } from '../../../../proxy/http/open-calls.ts'
import { eventData } from '../../../support/mcp/event-data.ts'
import { failure } from '../../../support/mcp/upstream-calls.ts'
import { refused } from '../../../support/refused.ts'

const LIMITS = { maxMessageBytes: 10_000, maxAnswerBytes: 1_000_000 }

async function* piecesOf(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  let from = 0
  for (let i = 0; from < bytes.length; i += 1) {
    const to = from + (sizes[i % sizes.length] ?? bytes.length)
    yield bytes.subarray(from, to)
    from = to
  }
}

async function read(text: string, sizes: readonly number[], limits = LIMITS): Promise<readonly string[]> {
  const events: string[] = []
  for await (const data of eventData(piecesOf(Buffer.from(text), sizes), limits)) events.push(String(data))
  return events
}

/** The same by a library that is not ours. */
function expected(text: string): readonly string[] {
  const events: string[] = []
  const parser = createParser({
    onEvent: ({ event = 'message', data }) => {
      if (event === 'message' && data !== '') events.push(data)
    },
  })
  parser.feed(text)
  return events
}

const token = fc.constantFrom(
  ...['\n', '\n', '\r', '\r\n', '\n\n', 'data', 'data:', 'data: ', 'dat', 'event', 'event: message'],
  ...[
    'event: other',
    ':',
    ': data: x',
    'id: 1',
    'retry: 5',
    'x',
    ' ',
    '€',
    '\ufeff',
    '\u0000',
    'database: y',
  ],
)

await t.test('an event stream is read as a library reads it, in pieces of any size', async (t) => {
  const stream = fc.array(token, { maxLength: 30 }).map((tokens) => tokens.join(''))
  const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 })
  const property = fc.asyncProperty(stream, sizes, async (text, cut) => {
    t.strictSame(await read(text, cut), expected(text), JSON.stringify(text))
  })
  await t.resolves(fc.assert(property, { numRuns: 500 }))
})

await t.test('A3 a line and an event of many lines are bounded in bytes', async (t) => {
  const long = 'x'.repeat(LIMITS.maxMessageBytes)
  t.strictSame(await read(`data: ${long}\n\n`, [1]), [long])
  await t.rejects(read(`data: ${long}x\n\n`, [7]), failure('too_large'))
  await t.rejects(read(`data: ${long}xxxxxxxxxx`, [7]), failure('too_large'))
  await t.rejects(read('data: x\n'.repeat(6_000), [64]), failure('too_large'))
  t.strictSame(await read(`:${long.repeat(9)}\ndata: y\n\n`, [1000]), ['y'], 'a comment is not kept')
  const limits = { ...LIMITS, maxAnswerBytes: 100 }
  await t.rejects(read(':\n'.repeat(60), [9], limits), failure('too_large'))
})

await t.test('A4: the most that is kept of a stream counts, and past the share it waits', async (t) => {
  const limits = { maxMessageBytes: 10_000_000, maxAnswerBytes: 100_000_000 }
  const MIB = 1024 * 1024
  const sizes = { process: 100 * MIB, perPrincipal: 8 * MIB, perAnonymous: MIB }
  const budget = new MemoryBudget(
    sizes,
    () => {},
    () => {},
    50,
  )
  const readAll = async (held: MemoryAccount, lengths: readonly number[]) => {
    const text = lengths.map((length) => `data: ${'x'.repeat(length)}\n\n`).join('')
    let count = 0
    for await (const _ of eventData(piecesOf(Buffer.from(text), [65_536]), limits, held)) count += 1
    return count
  }
  const [held, beside] = [budget.open(), budget.open()]
  for (const account of [held, beside]) account.setOwner({ principal: { id: 'alice', capabilities: ['x'] } })
  t.ok(beside.tryReserve(MIB), 'another call of hers')
  t.equal(await readAll(held, Array(20).fill(MIB)), 20)
  t.ok(budget.held >= 4 * MIB && budget.held < 5 * MIB, `${budget.held}`)
  await t.rejects(readAll(held, [8 * MIB]), refused('overloaded'), 'in vain')
  held.end()
  t.equal(budget.held, MIB)
  const next = budget.open()
  next.setOwner({ principal: { id: 'alice', capabilities: ['x'] } })
  t.ok(beside.tryReserve(6 * MIB))
  const reading = readAll(next, [MIB])
  beside.end()
  t.equal(await reading, 1, 'until there is room')
})
