import { createHash, hash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import {
  digestInTurns,
  editedBytes,
  eventPieces,
  joinedBytes,
} from '../../../../proxy/mcp/handlers/large-answer.ts'
import {
  applyEdits,
  errorMessage,
  eventOf,
  readObject,
  responseAround,
  responseBytes,
  resultMessage,
} from '../../../../proxy/mcp/protocol/json-text.ts'

async function eventText(message: string): Promise<string> {
  const pieces: Buffer[] = []
  for await (const piece of eventPieces(Buffer.from(message))) pieces.push(piece)
  return `${Buffer.concat(pieces).toString()}\n\n`
}

t.test('A6: a large event is written as a small one, whatever breaks its lines', async (t) => {
  for (const message of ['{}', '{\n}', '{\r\n\r\n}', '{\r\r\n\n}', '\n', '{}\n', 'ä\r\nö']) {
    t.equal(await eventText(message), eventOf(message), JSON.stringify(message))
  }
  // A piece ends between the two, and within a character.
  for (const lead of [64 * 1024 - 1, 64 * 1024]) {
    const message = `${' '.repeat(lead)}\r\n${'ä\n'.repeat(100_000)}`
    t.ok((await eventText(message)) === eventOf(message), `${lead}`)
    const line = `${' '.repeat(lead)}${'ä'.repeat(100_000)}`
    t.ok((await eventText(line)) === eventOf(line), `${lead} of one line`)
  }
})

t.test('A6: a large object is edited as a small one', async (t) => {
  const edits = fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.option(fc.constantFrom('1', '"x"')))
  fc.assert(
    fc.property(fc.dictionary(fc.constantFrom('a', 'b', 'ä'), fc.integer()), edits, (object, changes) => {
      const read = readObject(Buffer.from(JSON.stringify(object, null, 1)))
      return editedBytes(read, changes).toString() === applyEdits(read, changes)
    }),
  )
  const value = Buffer.from('{"a":1}')
  t.equal(responseBytes('"7"', 'result', value).toString(), resultMessage('"7"', '{"a":1}'))
  t.equal(responseBytes('7', 'error', value).toString(), errorMessage('7', '{"a":1}'))
  const around = (message: string, id: string): string => {
    const bytes = Buffer.from(`data: ${message}\n\n`).subarray(6, -2)
    const start = bytes.indexOf('{"a"')
    return responseAround({ bytes }, bytes.subarray(start, start + 7), id, 'result').toString()
  }
  for (const id of ['7', '"a-long-id-of-the-caller"']) {
    for (const message of [
      '{"jsonrpc":"2.0","id":1,"result":{"a":1}}',
      '{"result":{"a":1},"id":1,"jsonrpc":"2.0"}',
      ' { "jsonrpc":"2.0" , "id":1234, "result": {"a":1} , "x":0}',
    ])
      t.equal(around(message, id), resultMessage(id, '{"a":1}'), `${message}, ${id}`)
  }
  const long = Buffer.alloc(200_000, 'ä')
  const salted = createHash('sha256').update('salt')
  t.equal(await digestInTurns(salted, long), hash('sha256', Buffer.concat([Buffer.from('salt'), long])))
  const items = Array.from({ length: 10_000 }, (_, index) => `"ä${index}"`)
  t.equal((await joinedBytes('[', items, ']')).toString(), `[${items.join(',')}]`)
  t.equal((await joinedBytes('[', [], ']')).toString(), '[]')
})
