import { Readable } from 'node:stream'
import fc from 'fast-check'
import t from 'tap'
import { ByteCollector, collectBytes } from '../../plugins/collect.ts'

const ENDLESS = Number.POSITIVE_INFINITY

await t.test('A2 what was collected is what came, in pieces of any size', (t) => {
  const pieces = fc.array(fc.uint8Array({ maxLength: 9000 }), { maxLength: 40 })
  const declared = fc.option(fc.nat(100_000), { nil: undefined })
  const property = fc.property(pieces, declared, fc.nat(40), (arrays, length, middle) => {
    const collector = new ByteCollector(ENDLESS, length)
    const buffers = arrays.map((array) => Buffer.from(array))
    buffers.forEach((piece, index) => {
      if (index === middle) collector.bytes()
      if (!collector.add(piece)) throw new Error('not taken')
    })
    const whole = Buffer.concat(buffers)
    return collector.length === whole.length && collector.bytes().equals(whole)
  })
  t.doesNotThrow(() => fc.assert(property))
  t.end()
})

await t.test('A4: where there is room for all that is declared, nothing is copied once more', (t) => {
  const collector = new ByteCollector(ENDLESS, 100_000, true)
  const pieces = [1, 9_000, 20_000, 70_999].map((length) => Buffer.alloc(length, length % 251))
  for (const piece of pieces.slice(0, 3)) collector.add(piece)
  t.ok(collector.capacity < 40_000, 'nothing is allocated for what may never come')
  for (const piece of pieces.slice(3)) collector.add(piece)
  t.equal(collector.capacity, 100_000)
  const whole = collector.bytes()
  t.ok(whole.equals(Buffer.concat(pieces)))
  t.equal(whole.buffer.byteLength, 100_000)
  t.end()
})

await t.test('A2 it holds at most 1.1 times what has come, and 4 KiB', (t) => {
  for (const declared of [undefined, 400_000, 32 * 1024 * 1024]) {
    const collector = new ByteCollector(ENDLESS, declared)
    let worst = 0
    for (let length = 1; length <= 400_000; length += 1) {
      collector.add(Buffer.from([length & 0xff]))
      worst = Math.max(worst, collector.capacity - Math.max(4096, collector.length * 1.1) - 4096)
    }
    t.ok(worst <= 0, `${worst} bytes more, where ${declared} were declared`)
    t.equal(collector.bytes().length, 400_000)
    t.equal(collector.capacity, 400_000, 'and no more than that when it is handed out')
  }
  const exact = new ByteCollector(ENDLESS, 5000)
  for (let length = 0; length < 5000; length += 1) exact.add(Buffer.from(' '))
  t.equal(exact.capacity, 5000, 'nothing past a length that was declared')
  t.end()
})

await t.test('A2 a sole piece is handed out as it came, not copied', (t) => {
  const piece = Buffer.alloc(2048, 'x')
  const collector = new ByteCollector(2048, 2048)
  t.ok(collector.add(piece))
  t.equal(collector.bytes(), piece)
  t.end()
})

await t.test('A2 large pieces are kept as they came until they are joined, others copied', (t) => {
  const collector = new ByteCollector(ENDLESS)
  const pieces = [16_384, 3, 16_384, 16_384].map((length, index) =>
    Buffer.alloc(length, 'a'.charCodeAt(0) + index),
  )
  // A piece of something larger would keep all of that.
  pieces.push(Buffer.alloc(100_000, 'z').subarray(10, 20_000))
  const whole = Buffer.concat(pieces)
  for (const piece of pieces) collector.add(piece)
  pieces[4]?.fill('!')
  pieces[1]?.fill('!')
  t.ok(collector.capacity <= whole.length * 1.1 + 4096)
  t.ok(collector.bytes().equals(whole))
  for (const piece of pieces) piece.fill('!')
  t.ok(collector.bytes().equals(whole), 'what was handed out is nobody else’s')
  t.end()
})

await t.test('A2 what was handed out stays as it is when more comes', (t) => {
  const collector = new ByteCollector(ENDLESS)
  for (let i = 0; i < 20_000; i += 1) collector.add(Buffer.from('a'))
  const before = collector.bytes()
  collector.add(Buffer.from('b'))
  t.equal(collector.bytes().length, 20_001)
  t.ok(before.equals(Buffer.alloc(20_000, 'a')))
  t.equal(collector.bytes(), collector.bytes(), 'the same whenever it is asked for')
  t.end()
})

await t.test('A2 past the limit nothing is kept until it is cleared', (t) => {
  const collector = new ByteCollector(3)
  t.ok(collector.add(Buffer.from('abc')), 'the limit itself is no excess')
  t.notOk(collector.add(Buffer.from('d')))
  t.notOk(collector.add(Buffer.alloc(0)))
  t.equal(collector.capacity, 0)
  t.equal(collector.bytes().length, 0)
  collector.clear()
  t.ok(collector.add(Buffer.from('ef')))
  t.equal(String(collector.bytes()), 'ef')
  t.end()
})

await t.test('A2 a stream past the limit is destroyed, and its failure is thrown on', async (t) => {
  t.equal(String(await collectBytes(Readable.from([Buffer.from('a'), Buffer.from('b')]), 2)), 'ab')
  const long = Readable.from([Buffer.from('a'), Buffer.from('b'), Buffer.from('c')])
  t.equal(await collectBytes(long, 1), null)
  t.ok(long.destroyed)
  const broken = new Readable({ read: () => broken.destroy(new Error('cut')) })
  await t.rejects(collectBytes(broken, 1), { message: 'cut' })
})

await t.test('A5 what is joined in turns is what came', async (t) => {
  const pieces = Array.from({ length: 40 }, (_, i) => Buffer.alloc(150_000, i))
  const collector = new ByteCollector(ENDLESS)
  for (const piece of pieces) collector.add(piece)
  const whole = await collector.bytesInTurns()
  t.ok(whole.equals(Buffer.concat(pieces)))
  t.equal(await collector.bytesInTurns(), whole, 'the same again')
  t.equal(collector.capacity, whole.length)
})
