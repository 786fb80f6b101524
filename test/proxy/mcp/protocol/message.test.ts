import t from 'tap'
import { type JsonBody, jsonBody } from '../../../../plugins/json-body/json-body.ts'
import type { Arrival } from '../../../../plugins/plugin.ts'
import type { Refusal } from '../../../../plugins/refusal.ts'
import { PARAMS_BY_METHOD } from '../../../../proxy/mcp/protocol/members.ts'
import { mcpMessage, mcpPeek } from '../../../../proxy/mcp/protocol/message.ts'
import {
  GATED_METHODS,
  HANDSHAKE_METHODS,
  NAME_PARAM_BY_METHOD,
} from '../../../../proxy/mcp/protocol/methods.ts'
import { META_KEYS, MODERN_VERSION } from '../../../../proxy/mcp/protocol/versions.ts'
import { arrival } from '../../../support/plugins/arrival.ts'
import { refused } from '../../../support/refused.ts'

type Headers = Arrival['headers']

const META_OK = { [META_KEYS.version]: MODERN_VERSION, [META_KEYS.capabilities]: {} }
const MODERN_CALL = { 'mcp-protocol-version': MODERN_VERSION, 'mcp-method': 'tools/call', 'mcp-name': 'a.b' }

const body = jsonBody({ limit: 1_000_000, otherwise: 'mcp_message_invalid' })

/** Reads a request as the pipeline does. */
async function read(text: string, headers: Headers = {}) {
  const facts = arrival({ headers, readBody: () => Promise.resolve(Buffer.from(text)) })
  const given: JsonBody = await body.admit(facts)
  return { ...(await mcpPeek.admit(given)), ...(await mcpMessage.admit({ ...facts, ...given })) }
}

const message = (more: object): string => JSON.stringify({ jsonrpc: '2.0', ...more })
const call = (params: object): string => message({ id: 1, method: 'tools/call', params })

await t.test('§4.3 a request without initialize beforehand is read, as of the legacy era', async (t) => {
  const { message: read1, peeked } = await read(call({ name: 'a.b', arguments: {} }))
  t.match(read1, { kind: 'request', era: 'legacy', version: '2025-03-26', method: 'tools/call', id: '1' })
  t.same(peeked.demand, { action: 'mcp_tools_call', demanded: [] })
  t.equal(peeked.tool, 'a.b')
})

await t.test('every legacy version is read by its header; the id comes back as it was written', async (t) => {
  for (const version of ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05']) {
    const read1 = await read('{"jsonrpc":"2.0","id":"\\u0061b","method":"ping"}', {
      'mcp-protocol-version': version,
    })
    t.match(read1.message, { era: 'legacy', version, id: '"\\u0061b"' })
  }
})

await t.test('2026-07-28: header, _meta and standard headers that agree are read as modern', async (t) => {
  const read1 = await read(call({ name: 'a.b', _meta: META_OK }), MODERN_CALL)
  t.match(read1.message, { era: 'modern', version: MODERN_VERSION, kind: 'request' })
  const encoded = `=?base64?${Buffer.from('a.b').toString('base64')}?=`
  t.ok(await read(call({ name: 'a.b', _meta: META_OK }), { ...MODERN_CALL, 'mcp-name': encoded }))
  const discover = message({ id: 1, method: 'server/discover', params: { _meta: META_OK } })
  t.ok(await read(discover, { 'mcp-protocol-version': MODERN_VERSION, 'mcp-method': 'server/discover' }))
})

await t.test('H1: each method that is served has a row of its members', async (t) => {
  const served = [...GATED_METHODS.keys(), ...HANDSHAKE_METHODS.legacy, ...HANDSHAKE_METHODS.modern]
  t.same(
    served.filter((method) => !PARAMS_BY_METHOD.has(method)),
    [],
  )
  for (const [method, member] of NAME_PARAM_BY_METHOD)
    t.ok(PARAMS_BY_METHOD.get(method)?.names.exact.has(member), method)
})

await t.test('RFC 9110 §12.5.1: events are taken by who does not weigh them with 0', async (t) => {
  for (const [accept, takes] of [
    ['application/json, text/event-stream', true],
    ['application/json, text/event-stream;q=0.1', true],
    ['*/*;q=0.8', true],
    ['application/json, text/event-stream;q=0', false],
    ['text/event-stream; q=0.0, */*', false],
    ['application/json', false],
  ] as const)
    t.equal((await read(call({ name: 'a.b' }), { accept })).message.takesEvents, takes, accept)
})

await t.test('a notification and a response of a legacy client are told from requests', async (t) => {
  t.match((await read(message({ method: 'notifications/initialized' }))).message, {
    kind: 'notification',
    id: null,
  })
  t.match((await read(message({ id: 'q-1', result: {} }))).message, { kind: 'response', id: '"q-1"' })
  t.match((await read(message({ id: 'q-1', error: { code: 1 } }))).message, { kind: 'response' })
})

const modern = (params: object, headers: Headers): [string, Headers] => [call(params), headers]
const NO_META = { name: 'a.b' }
const WITH_META = { name: 'a.b', _meta: META_OK }

const REFUSED: readonly (readonly [string, Refusal['reason'], string, Headers?])[] = [
  ['a batch', 'mcp_message_invalid', `[${call({ name: 'a.b' })}]`],
  ['a string', 'mcp_message_invalid', '"tools/call"'],
  ['text that is no JSON', 'body_invalid', '{"jsonrpc":'],
  ['a second message behind the first', 'body_invalid', `${call({ name: 'a.b' })}${call({ name: 'a.b' })}`],
  ['a member named twice', 'body_invalid', '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}'],
  ['a method whose name is escaped', 'body_invalid', '{"jsonrpc":"2.0","id":1,"meth\\u006fd":"tools/call"}'],
  [
    'parameters whose names are escaped',
    'body_invalid',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"n\\u0061me":"a.b"}}',
  ],
  [
    'an outer member that some reader takes for the method',
    'mcp_params_invalid',
    '{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}',
  ],
  [
    'an answer that some reader takes for another one',
    'mcp_params_invalid',
    message({ id: 'q-1', result: { action: 'decline', Action: 'accept' } }),
  ],
  [
    'an answer beside which some reader sees an error',
    'mcp_params_invalid',
    message({ id: 'q-1', result: {}, Error: { code: 1, message: '' } }),
  ],
  [
    'an error with another code to some reader',
    'mcp_params_invalid',
    message({ id: 'q-1', error: { code: 1, Code: 2, message: '' } }),
  ],
  [
    'an unknown method with a member that some reader takes for _meta',
    'mcp_params_invalid',
    message({ id: 1, method: 'tools/delete', params: { _Meta: {} } }),
  ],
  ['no jsonrpc', 'mcp_request_invalid', '{"id":1,"method":"ping"}'],
  ['jsonrpc 1.0', 'mcp_request_invalid', '{"jsonrpc":"1.0","id":1,"method":"ping"}'],
  ['an id of null', 'mcp_request_invalid', message({ id: null, method: 'ping' })],
  ['a fractional id', 'mcp_request_invalid', '{"jsonrpc":"2.0","id":1.5,"method":"ping"}'],
  ['an id that is an object', 'mcp_request_invalid', message({ id: {}, method: 'ping' })],
  [
    'an id that is half a character',
    'mcp_request_invalid',
    '{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
  ],
  ['a method that is no string', 'mcp_request_invalid', message({ id: 1, method: ['tools/call'] })],
  ['a method with white space', 'mcp_request_invalid', message({ id: 1, method: 'tools/call ' })],
  ['neither method nor result', 'mcp_request_invalid', message({ id: 1 })],
  ['both result and error', 'mcp_request_invalid', message({ id: 1, result: {}, error: {} })],
  ['a response without an id', 'mcp_request_invalid', message({ result: {} })],
  [
    'a response of a modern client',
    'mcp_request_invalid',
    message({ id: 1, result: {} }),
    { 'mcp-protocol-version': MODERN_VERSION },
  ],
  ['an unknown method', 'mcp_method_unknown', message({ id: 1, method: 'tools/delete' })],
  ['a method in other letters', 'mcp_method_unknown', message({ id: 1, method: 'Tools/Call' })],
  ['a method of Object.prototype', 'mcp_method_unknown', message({ id: 1, method: 'constructor' })],
  ['parameters that are a list', 'mcp_params_invalid', message({ id: 1, method: 'tools/call', params: [] })],
  ['_meta that is a list', 'mcp_params_invalid', call({ _meta: [] })],
  [
    'an unknown version',
    'mcp_version_unsupported',
    message({ id: 1, method: 'ping' }),
    { 'mcp-protocol-version': '1900-01-01' },
  ],
  [
    'an unknown version in both places',
    'mcp_version_unsupported',
    call({ _meta: { ...META_OK, [META_KEYS.version]: '2030-01-01' } }),
    { ...MODERN_CALL, 'mcp-protocol-version': '2030-01-01' },
  ],
  [
    'a legacy version in _meta',
    'mcp_version_unsupported',
    call({ _meta: { ...META_OK, [META_KEYS.version]: '2025-11-25' } }),
    { ...MODERN_CALL, 'mcp-protocol-version': '2025-11-25' },
  ],
  ['a modern header without _meta', 'mcp_meta_invalid', ...modern(NO_META, MODERN_CALL)],
  [
    '_meta without capabilities',
    'mcp_meta_invalid',
    ...modern({ name: 'a.b', _meta: { [META_KEYS.version]: MODERN_VERSION } }, MODERN_CALL),
  ],
  [
    'capabilities that are no object',
    'mcp_meta_invalid',
    ...modern({ name: 'a.b', _meta: { ...META_OK, [META_KEYS.capabilities]: null } }, MODERN_CALL),
  ],
  [
    '_meta without the version header',
    'mcp_header_mismatch',
    ...modern(WITH_META, { 'mcp-method': 'tools/call', 'mcp-name': 'a.b' }),
  ],
  [
    'a version header that says otherwise',
    'mcp_header_mismatch',
    ...modern(WITH_META, { ...MODERN_CALL, 'mcp-protocol-version': '2025-11-25' }),
  ],
  [
    'a missing Mcp-Method',
    'mcp_header_mismatch',
    ...modern(WITH_META, { 'mcp-protocol-version': MODERN_VERSION, 'mcp-name': 'a.b' }),
  ],
  [
    'another Mcp-Method',
    'mcp_header_mismatch',
    ...modern(WITH_META, { ...MODERN_CALL, 'mcp-method': 'tools/list' }),
  ],
  [
    'an Mcp-Method in other letters',
    'mcp_header_mismatch',
    ...modern(WITH_META, { ...MODERN_CALL, 'mcp-method': 'Tools/call' }),
  ],
  [
    'a missing Mcp-Name',
    'mcp_header_mismatch',
    ...modern(WITH_META, { 'mcp-protocol-version': MODERN_VERSION, 'mcp-method': 'tools/call' }),
  ],
  ['another Mcp-Name', 'mcp_header_mismatch', ...modern(WITH_META, { ...MODERN_CALL, 'mcp-name': 'a.c' })],
  ['two Mcp-Names', 'mcp_header_mismatch', ...modern(WITH_META, { ...MODERN_CALL, 'mcp-name': 'a.b, a.b' })],
  [
    'an Mcp-Name that decodes to another',
    'mcp_header_mismatch',
    ...modern(WITH_META, { ...MODERN_CALL, 'mcp-name': '=?base64?YS5j?=' }),
  ],
  [
    'a legacy call whose Mcp-Method says otherwise',
    'mcp_header_mismatch',
    call(NO_META),
    { 'mcp-method': 'tools/list' },
  ],
  [
    'a legacy call whose Mcp-Name says otherwise',
    'mcp_header_mismatch',
    call(NO_META),
    { 'mcp-name': 'c.d' },
  ],
  [
    'initialize of a modern client',
    'mcp_method_unknown',
    message({ id: 1, method: 'initialize', params: { _meta: META_OK } }),
    { ...MODERN_CALL, 'mcp-method': 'initialize' },
  ],
  ['server/discover of a legacy client', 'mcp_method_unknown', message({ id: 1, method: 'server/discover' })],
  [
    'logging/setLevel of a modern client',
    'mcp_method_unknown',
    message({ id: 1, method: 'logging/setLevel', params: { _meta: META_OK } }),
    { ...MODERN_CALL, 'mcp-method': 'logging/setLevel' },
  ],
]

for (const [what, reason, text, headers] of REFUSED) {
  await t.test(`docs/protocol.md#mcp-errors: ${what} is refused with ${reason}`, async (t) => {
    await t.rejects(read(text, headers), refused(reason))
  })
}
