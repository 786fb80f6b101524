import { chat, chatWith, type Item, JSON_TYPE, mcp, requestOf, toolCall } from './request.ts'

const KIB = 1024
const MIB = 1024 * KIB
const CHUNKED = 'transfer-encoding: chunked'

const list = (count: number, text: string): string => `[${`${text},`.repeat(count - 1)}${text}]`
const names = (count: number, name: (i: number) => string): string =>
  `{${Array.from({ length: count }, (_, i) => `${JSON.stringify(name(i))}:0`).join()}}`

/** A5: legal bodies, and those that end as wrong as late as may be. */
const chats: Readonly<Record<string, Item['request']>> = {
  'a million numbers': () => chatWith(list(999_000, '1')),
  'a million long numbers': () => chatWith(list(900_000, '-1.5e-300')),
  '99,000 long names': () => chatWith(names(99_000, (i) => `a name of some length, number ${i}`)),
  'metadata of 99,000 names': () =>
    chat(
      `{"model":"hostile-small","messages":[],"metadata":${names(99_000, (i) => `a name of some length, number ${i}`)}}`,
    ),
  '99,000 names that are numbers': () => chatWith(names(99_000, (i) => String(i * 7_919))),
  '999,000 empty arrays': () => chatWith(list(999_000, '[]')),
  'ten million empty arrays': () => chatWith(list(10_000_000, '[]')),
  '30 MiB of spaces': () => chat(`${' '.repeat(30 * MIB)}{"model":"hostile-small","messages":[]}`),
  '50,000 small objects': () => chatWith(list(50_000, '{"a":1}')),
  '99,000 small objects': () => chatWith(list(99_000, '{"a":1}')),
  '100,000 messages': () =>
    chat(`{"model":"hostile-small","messages":${list(45_000, '{"role":"user","content":"a"}')}}`),
  '30 MiB of one string': () => chatWith(JSON.stringify('a'.repeat(30 * MIB))),
  '5 MiB of escapes': () => chatWith(JSON.stringify('\u0001'.repeat(5 * MIB))),
  '30 MiB of quotes': () => chatWith(JSON.stringify('"'.repeat(15 * MIB))),
  '15 MiB of empty strings': () => chatWith(list(999_000, '""')),
  'one number of 30 MiB': () => chatWith('1'.repeat(30 * MIB)),
  'one number of 1 MiB': () => chatWith('1'.repeat(MIB)),
  'arrays in arrays': () => chatWith(`${'['.repeat(500_000)}${']'.repeat(500_000)}`),
  'text of two bytes a letter': () => chatWith(JSON.stringify('é'.repeat(15 * MIB))),
  'UTF-8 that ends wrong': () => chatWith(`"${'a'.repeat(10 * MIB)}\ud800"`),
  'a model of 1 MiB': () => chat(`{"model":"${'m'.repeat(MIB)}","messages":[]}`),
  'a million commas': () => chatWith(`[${','.repeat(999_000)}]`),
  'a string that never ends': () => chatWith(`"${'a'.repeat(10 * MIB)}`),
  'what is no JSON': () => chat('x'.repeat(30 * MIB)),
  backslashes: () => chatWith(JSON.stringify('\\'.repeat(10 * MIB))),
}

/** Values that were found to hold up the loop once, in bodies near the limit. */
const nearLimit = (bytes: number): Readonly<Record<string, string>> => ({
  digits: '1'.repeat(bytes),
  'short strings': list(bytes / 4 - 1, '"a"'),
  backslashes: `"${'\\\\'.repeat(bytes / 2)}"`,
})

/**
 * Requests of an agent that holds nothing: an LLM call is refused before it is read, an MCP message is read
 * first.
 */
const ofNobodysAgent: readonly Item[] = [
  ...Object.entries(nearLimit(31 * MIB)).map(
    ([name, value]): Item => ({
      id: 'A5',
      name: `31 MiB of ${name} of who holds nothing`,
      who: 'empty',
      request: () => chatWith(value),
    }),
  ),
  ...Object.entries(nearLimit(7 * MIB)).map(
    ([name, value]): Item => ({
      id: 'A5',
      name: `arguments of 7 MiB of ${name} of who holds nothing`,
      who: 'empty',
      request: () => toolCall('h-small.tool', `{"list":${value}}`),
    }),
  ),
]

const messages: Readonly<Record<string, Item['request']>> = {
  'arguments of 95,000 objects': () => toolCall('h-small.tool', `{"list":${list(95_000, '{"a":1}')}}`),
  'arguments of 900,000 numbers': () => toolCall('h-small.tool', `{"list":${list(900_000, '1')}}`),
  'arguments of one string of 7 MiB': () =>
    toolCall('h-small.tool', `{"text":${JSON.stringify('a'.repeat(7 * MIB))}}`),
  'arguments of 90,000 names': () =>
    toolCall(
      'h-small.tool',
      names(90_000, (i) => `name ${i}`),
    ),
  'a tool of 7 MiB': () => toolCall('t'.repeat(7 * MIB)),
  'a method of 7 MiB': () => mcp(`{"jsonrpc":"2.0","id":1,"method":"${'m'.repeat(7 * MIB)}"}`),
  'an id of 7 MiB': () => mcp(`{"jsonrpc":"2.0","id":"${'i'.repeat(7 * MIB)}","method":"tools/list"}`),
  'a cursor of 7 MiB': () =>
    mcp(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"${'c'.repeat(7 * MIB)}"}}`),
  'a batch of 90,000': () => mcp(list(30_000, '{"jsonrpc":"2.0","id":1,"method":"ping"}')),
  '_meta of 90,000 names': () =>
    mcp(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":${names(90_000, (i) => `m${i}`)}}}`),
  'a uri of 7 MiB': () =>
    mcp(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"h:${'/u'.repeat(3 * MIB)}"}}`),
  'an answer to nothing': () => mcp(`{"jsonrpc":"2.0","id":1,"result":{"a":${list(900_000, '1')}}}`),
}

/** A6: arguments that are costly to judge by their tool's schema. */
const judged: Readonly<Record<string, Item['request']>> = {
  'arguments of 7,000 objects for a wide schema': () =>
    toolCall('h-schema.tool', `{"list":${list(7_000, '{"a":"b"}')}}`),
  'arguments of 50,000 numbers for a wide schema': () =>
    toolCall('h-schema.tool', `{"list":${list(50_000, '1')}}`),
  // Compiled at the first call of each.
  'arguments of 980 members, each of its own kind': (_, again) =>
    toolCall(
      `h-numbers-${again}.tool`,
      names(980, (i) => `property_${i}`),
    ),
  'arguments of 6,000 objects, all different': () =>
    toolCall('h-unique.tool', `{"list":[${Array.from({ length: 6_000 }, (_, i) => `{"a":${i}}`).join()}]}`),
  'arguments of 60,000 numbers for 300 choices': () =>
    toolCall('h-choices.tool', `{"list":${list(60_000, '0')}}`),
  'arguments of strings to search': () =>
    toolCall('h-search.tool', `{"list":${list(2_000, `"${'abcd'.repeat(250)}x"`)}}`),
  'arguments of 900 members for a wide schema': () =>
    toolCall(
      'h-schema.tool',
      names(900, (i) => `property_${i}`),
    ),
}

const FORM = 'content-type: application/x-www-form-urlencoded'
const token = (body: string, type = FORM) => requestOf('POST', '/v1/auth/token', [type], body)

const signIns: Readonly<Record<string, Item['request']>> = {
  'a form of 13,000 parameters': () =>
    token(Array.from({ length: 13_000 }, (_, i) => `${i.toString(36)}=`).join('&')),
  'a form of one parameter 20,000 times': () => token('a=&'.repeat(20_000)),
  'a form of escapes': () => token(`grant_type=client_credentials&scope=${'%20a'.repeat(15_000)}`),
  'a scope of 30,000 words': () => token(`grant_type=client_credentials&scope=${'a+'.repeat(30_000)}`),
  'an assertion of 60 KiB': () => token(`{"client_assertion":"${'A.'.repeat(30_000)}"}`, JSON_TYPE),
  'a login of many members': () =>
    requestOf(
      'POST',
      '/v1/auth/login-challenge',
      [JSON_TYPE],
      names(90_000, (i) => `${i}`),
    ),
  'an assertion to sign': () =>
    requestOf(
      'POST',
      '/v1/auth/sign-challenged-assertion',
      [JSON_TYPE],
      `{"assertion":"${'A'.repeat(MIB - 100)}"}`,
    ),
}

const drips: readonly (readonly [string, Item['manner'], Item['who'], string, number])[] = [
  ['chat', 'chunks', 'bot', '/v1/chat/completions', 200_000],
  ['chat', 'records', 'bot', '/v1/chat/completions', 20_000],
  ['a stranger’s setup', 'chunks', 'nobody', '/v1/admin/setup', 4_000],
  ['a stranger’s chat', 'chunks', 'nobody', '/v1/chat/completions', 200_000],
  ['a tool', 'chunks', 'bot', '/v1/mcp', 200_000],
  ['a path that is not', 'chunks', 'nobody', '/nothing', 200_000],
]

const itemsOf = (id: Item['id'], requests: Readonly<Record<string, Item['request']>>): readonly Item[] =>
  Object.entries(requests).map(([name, request]) => ({ id, name, request }))

/** Bodies of callers. */
export const bodyItems: readonly Item[] = [
  ...ofNobodysAgent,
  ...itemsOf('A5', chats),
  ...itemsOf('A5', messages),
  ...itemsOf('A6', judged),
  ...itemsOf('row 23', signIns),
  ...drips.map(([what, manner = 'chunks', who = 'bot', path, length]): Item => {
    const framing = manner === 'chunks' ? CHUNKED : `content-length: ${length}`
    return {
      id: 'A3',
      name: `${what} in ${manner} of one byte, ${length}`,
      who,
      manner,
      request: () => ({ ...requestOf('POST', path, [JSON_TYPE], '', framing), body: ' '.repeat(length) }),
    }
  }),
]
