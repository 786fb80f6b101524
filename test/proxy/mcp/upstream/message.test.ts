import t from 'tap'
import { kindOfMessage, readMessage } from '../../../../proxy/mcp/upstream/message.ts'
import { failure } from '../../../support/mcp/upstream-calls.ts'

const read = (text: string) => readMessage(Buffer.from(text))

await t.test('§2.2 a request, a notification and a response are each read as what they are', async (t) => {
  const kinds: [string, string][] = [
    ['{"jsonrpc":"2.0","id":"a","method":"ping"}', 'request'],
    ['{"jsonrpc":"2.0","id":0,"method":"ping","params":{}}', 'request'],
    ['{"jsonrpc":"2.0","method":"notifications/progress","params":{"x":1}}', 'notification'],
    ['{"jsonrpc":"2.0","method":"notifications/progress","params":null}', 'notification'],
    ['{"jsonrpc":"2.0","id":1,"result":{}}', 'response'],
    ['{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":""}}', 'response'],
    ['{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":""}}', 'response'],
    ['{"jsonrpc":"2.0","error":{"code":-1,"message":"","data":[1]}}', 'response'],
  ]
  for (const [text, kind] of kinds) t.equal(kindOfMessage(read(text)), kind, text)
})

await t.test('§2.2 the bytes and the places of the members are those that came', async (t) => {
  const text = ' {"jsonrpc":"2.0", "id":7,"result": {"big":12345678901234567890,"a":"\\u00e4"} }'
  const { bytes, spans } = read(text)
  const { start, end } = spans.get('result') ?? { start: 0, end: 0 }
  t.equal(bytes.toString(), text)
  t.equal(bytes.toString('utf8', start, end), '{"big":12345678901234567890,"a":"\\u00e4"}')
})

await t.test('T14 what is not one JSON-RPC 2.0 object is refused', async (t) => {
  const texts = [
    '',
    'null',
    '1',
    '"x"',
    '[]',
    '[{"jsonrpc":"2.0","id":1,"result":{}}]',
    '{}',
    '{"jsonrpc":"1.0","id":1,"result":{}}',
    '{"id":1,"result":{}}',
    '{"jsonrpc":"2.0","id":1}',
    '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}',
    '{"jsonrpc":"2.0","id":1,"method":"x","result":{}}',
    '{"jsonrpc":"2.0","id":1,"result":null}',
    '{"jsonrpc":"2.0","id":1,"result":[]}',
    '{"jsonrpc":"2.0","id":null,"result":{}}',
    '{"jsonrpc":"2.0","result":{}}',
    '{"jsonrpc":"2.0","id":1.5,"result":{}}',
    '{"jsonrpc":"2.0","id":{},"result":{}}',
    '{"jsonrpc":"2.0","id":1,"error":"no"}',
    '{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":""}}',
    '{"jsonrpc":"2.0","id":1,"error":{"code":1}}',
    '{"jsonrpc":"2.0","id":null,"method":"x"}',
    '{"jsonrpc":"2.0","id":true,"method":"x"}',
    '{"jsonrpc":"2.0","method":""}',
    '{"jsonrpc":"2.0","method":"x","params":[1]}',
  ]
  for (const text of texts) t.throws(() => read(text), failure('failed'), text)
})

await t.test('T14 what two readers could take for two things is refused', async (t) => {
  const texts = [
    '{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
    '{"jsonrpc":"2.0","id":1,"result":{},"result":{"isError":true}}',
    '{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}',
    '{"jsonrpc":"2.0","id":1,"r\\u0065sult":{}}',
    '{"jsonrpc":"2.0","id":1,"result":{}} {}',
    '{"jsonrpc":"2.0","id":1,"result":{}}x',
    '\ufeff{"jsonrpc":"2.0","id":1,"result":{}}',
    `{"jsonrpc":"2.0","id":1,"result":{"a":${'['.repeat(80)}${']'.repeat(80)}}}`,
  ]
  for (const text of texts) t.throws(() => read(text), failure('failed'), text.slice(0, 60))
  const notUtf8 = Buffer.from('{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}', 'latin1')
  t.throws(() => readMessage(notUtf8), failure('failed'))
})

await t.test('threat 30 what is wrong with a message is said without quoting it', async (t) => {
  try {
    read('{"jsonrpc":"2.0","id":1,"result":{"token":hunter2}}')
    t.fail('it was read')
  } catch (error) {
    t.notMatch(JSON.stringify([String(error), (error as Error).cause, (error as Error).stack]), 'hunter2')
  }
})
