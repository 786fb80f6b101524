import { costlyChain } from '../../siege/attacks/costly-chain.ts'
import { chat, type Item, mcp, requestOf } from './request.ts'

const KIB = 1024
/** Node takes heads of 16 KiB. */
const LONG = 15 * KIB
const CHAT = '{"model":"hostile-small","messages":[]}'
const LIST = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'

const json = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url')
const times = (count: number, text: (i: number) => string): string =>
  Array.from({ length: count }, (_, i) => text(i)).join('')

/** A proof as long as one may be, whose header or claims hold so much. */
const proof = (header: object, claims: object): string =>
  `${json({ typ: 'dpop+jwt', alg: 'ES256', ...header })}.${json(claims)}.${'A'.repeat(86)}`

const values: Readonly<Record<string, string>> = {
  'dpop of one long segment': `dpop: ${'A'.repeat(LONG)}`,
  'dpop of dots': `dpop: ${'.'.repeat(LONG)}`,
  'dpop with many members': `dpop: ${proof(Object.fromEntries(Array.from({ length: 600 }, (_, i) => [`m${i}`, i])), {})}`,
  'dpop with deep claims': `dpop: ${json({ typ: 'dpop+jwt' })}.${Buffer.from(`{"a":${'['.repeat(2_000)}${']'.repeat(2_000)}}`).toString('base64url')}.AAAA`,
  'dpop with a long RSA key': `dpop: ${proof({ alg: 'PS256', jwk: { kty: 'RSA', n: `w${'x'.repeat(682)}`, e: `w${'x'.repeat(682)}` } }, {})}`,
  'authorization of DPoP': `authorization: DPoP ${'A'.repeat(LONG)}`,
  'authorization of spaces': `authorization: DPoP${' '.repeat(LONG)}`,
  'authorization of many parts': `authorization: Bearer ${'A.'.repeat(LONG / 2)}`,
  'authorization of a wide token': `authorization: Bearer ${json({ typ: 'at+jwt', alg: 'ES256', kid: 'x'.repeat(4_000) })}.${json({ iss: 'x', scope: 'a '.repeat(2_000) })}.AAAA`,
  'an API key': `x-api-key: sk_${'k'.repeat(LONG)}`,
  'an accept of a thousand items': `accept: ${times(1_200, (i) => `a/${i};q=0.1,`)}`,
  'an accept of semicolons': `accept: ${';'.repeat(LONG)}`,
  'a content-type of parameters': `content-type: application/json${';charset=utf-8'.repeat(1_000)}`,
  cookies: `cookie: ${'a=1; '.repeat(LONG / 5)}`,
  'a traceparent': `traceparent: 00-${'a'.repeat(LONG)}`,
  'a tracestate': `tracestate: ${'a=b,'.repeat(LONG / 4)}`,
  'an idempotency key': `idempotency-key: ${'i'.repeat(LONG)}`,
  'a session id': `mcp-session-id: ${'s'.repeat(LONG)}`,
  'a protocol version': `mcp-protocol-version: ${'2025-11-25,'.repeat(LONG / 11)}`,
  'an mcp-name of escapes': `mcp-name: =?base64?${'QUFB'.repeat(LONG / 4)}?=`,
  'an mcp-method': `mcp-method: ${'tools/call,'.repeat(LONG / 11)}`,
  'an origin': `origin: https://${'a.'.repeat(LONG / 2)}example`,
  'a forwarded': `forwarded: ${'for=1.1.1.1,'.repeat(LONG / 12)}`,
  'an if-none-match': `if-none-match: ${'"a",'.repeat(LONG / 4)}`,
  'a wrong secret': `x-admin-secret: ${'x'.repeat(LONG)}`,
  'an Expect': `expect: ${'100-continue,'.repeat(LONG / 13)}`,
}

const lists: Readonly<Record<string, readonly string[]>> = {
  'two thousand header lines': Array.from({ length: 2_000 }, (_, i) => `x${i}: 1`),
  'a thousand cookie lines': Array.from({ length: 1_000 }, () => 'cookie: a=1'),
  'a thousand lines of one name': Array.from({ length: 1_000 }, () => 'x-same: aa'),
  'a head past its limit': [`x-long: ${'x'.repeat(40 * KIB)}`],
}

const paths: Readonly<Record<string, string>> = {
  'a path of segments': `/${'a/'.repeat(LONG / 2)}`,
  'a path of escapes': `/v1/mcp/${'%61'.repeat(LONG / 3)}`,
  'a path of broken escapes': `/v1/mcp/${'%E0%A4%A'.repeat(LONG / 8)}`,
  'a query of pairs': `/v1/models?${'a=1&'.repeat(LONG / 4)}`,
  'a query of names': `/v1/models?${times(3_000, (i) => `${i}&`)}`,
  'the models': '/v1/models',
  'the API description': '/openapi.json',
  readiness: '/ready',
}

/** Handshakes, and heads. */
export const headItems: readonly Item[] = [
  { id: 'A1', name: 'a costly chain', chain: costlyChain, request: () => chat(CHAT) },
  { id: 'A1', name: 'a stranger', who: 'nobody', request: () => chat(CHAT) },
  ...Object.entries({ ...values, ...lists }).flatMap(([name, lines]): readonly Item[] => [
    { id: 'row 23', name: `${name}, chat`, request: () => chat(CHAT, [lines].flat()) },
    { id: 'row 23', name: `${name}, MCP`, request: () => mcp(LIST, [lines].flat()) },
  ]),
  ...Object.entries(paths).map(
    ([name, path]): Item => ({ id: 'row 23', name, request: () => requestOf('GET', path) }),
  ),
  {
    id: 'row 23',
    name: 'fifty descriptions at once',
    who: 'nobody',
    request: () => {
      const { head } = requestOf('GET', '/openapi.json')
      return { head: head.replace('connection: close\r\n', '').repeat(49) + head, body: '' }
    },
  },
  {
    id: 'row 23',
    name: 'ninety refused calls at once',
    who: 'empty',
    request: () => {
      const { head } = chat(CHAT)
      return { head: `${head.replace('connection: close\r\n', '')}${CHAT}`.repeat(89) + head, body: CHAT }
    },
  },
]
