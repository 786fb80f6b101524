import fc from 'fast-check'
import t from 'tap'
import {
  parseLedgerCursor,
  parseListCursor,
  printLedgerCursor,
  printListCursor,
} from '../../../db/support/cursor.ts'

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const NO_CURSORS = ['', 'x', '%00', encode(null), encode({}), encode(['a']), encode(['a', 1])]

t.test('a cursor of a list is read back as it was printed, and what is no cursor is refused', async (t) => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (createdAt, id) => {
      const parsed = parseListCursor(printListCursor({ createdAt, id }))
      return parsed?.createdAt === createdAt && parsed.id === id
    }),
  )
  for (const text of [...NO_CURSORS, encode(['a', 'b', 'c'])]) t.equal(parseListCursor(text), null, text)
})

t.test('a cursor of the ledger is read back as it was printed, and what is none is refused', async (t) => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.maxSafeNat(), (recorded_at, stream, seq) => {
      const parsed = parseLedgerCursor(printLedgerCursor({ recorded_at, stream, seq }))
      return parsed.recorded_at === recorded_at && parsed.stream === stream && parsed.seq === seq
    }),
  )
  for (const text of [...NO_CURSORS, encode(['a', 'b']), encode(['a', 'b', 1.5]), encode(['a', 'b', 'c'])])
    t.throws(() => parseLedgerCursor(text), RangeError, text)
})
