import {
  CHAT_PATH,
  firstAnswer,
  JSON_TYPE,
  lanes,
  linger,
  openTls,
  requestOf,
  someAddress,
  write,
} from './sockets.ts'
import { type Attack, oneOf } from './target.ts'

/** Heads as long as they may be and longer, and heads that no honest client sends. */
export const heads: Attack = (siege) =>
  lanes(siege, 8, 100, async () => {
    const who = siege.random() < 0.5 ? {} : siege.target.rogue
    const socket = await openTls(siege, who, someAddress(siege.random))
    await write(
      socket,
      requestOf('POST', oneOf(siege.random, PATHS), [JSON_TYPE, ...oneOf(siege.random, HEADS)], '{}'),
    )
    await firstAnswer(socket, 2_000)
    socket.destroy()
  })

/** D2: questions to the admin API without a secret and with wrong ones, from the honest address too. */
export const guesses: Attack = (siege) =>
  lanes(siege, 6, 60, async (lane) => {
    const from = lane < 2 ? '127.0.0.1' : someAddress(siege.random)
    const secret = lane % 2 === 0 ? [] : [`x-admin-secret: guess-${siege.random()}`]
    const socket = await openTls(siege, {}, from)
    await write(socket, requestOf('GET', '/v1/admin/audit?limit=1', secret))
    await firstAnswer(socket, 5_000)
    socket.destroy()
  })

/** Streams without an end that nobody reads, and answers read a byte at a time. */
export const slowReaders: Attack = (siege) =>
  lanes(siege, 16, 5_000, async () => {
    const socket = await openTls(siege, siege.target.rogue, someAddress(siege.random))
    socket.pause()
    const model = oneOf(siege.random, ['hostile-endless', 'hostile-big', 'hostile-drip'])
    const body = `{"model":"${model}","stream":${model !== 'hostile-big'},"messages":[]}`
    await write(socket, requestOf('POST', CHAT_PATH, [JSON_TYPE], body))
    await linger(socket, 15_000)
  })

/** SIGUSR1 would open a debugger. */
export const signals: Attack = (siege) =>
  lanes(siege, 1, 1_000, () => {
    process.kill(siege.target.pid, 'SIGUSR1')
    return Promise.resolve()
  })

const PATHS = [
  CHAT_PATH,
  '/v1/mcp',
  '/v1/models',
  '/',
  `/${'a/'.repeat(3_000)}`,
  `/v1/mcp/${'%61'.repeat(2_000)}`,
] as const

const HEADS: readonly [readonly string[], ...(readonly string[])[]] = [
  Array.from({ length: 1_000 }, (_, i) => `x-${i}: 1`),
  Array.from({ length: 500 }, () => 'cookie: a=1'),
  [`cookie: ${'a=1; '.repeat(3_000)}`],
  [`accept: ${'a/b;q=0.1, '.repeat(1_400)}`],
  [`authorization: DPoP ${'A'.repeat(15_000)}`],
  [`authorization: Bearer ${'A.'.repeat(7_000)}`],
  [`dpop: ${'A'.repeat(15_000)}`],
  [`traceparent: 00-${'a'.repeat(10_000)}`, `tracestate: ${'a=b,'.repeat(1_000)}`],
  [`x-api-key: ${'k'.repeat(15_000)}`],
  [`mcp-session-id: ${'s'.repeat(15_000)}`],
  [`x-long: ${'x'.repeat(40_000)}`],
  ['transfer-encoding: chunked'],
  ['host: other.example'],
  ['x_y: 1'],
]
