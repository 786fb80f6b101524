import type { ServerResponse } from 'node:http'
import type { Test } from 'tap'
import type { McpUpstreamOptions } from '../../../proxy/mcp/upstream/client.ts'
import type { FailureKind } from '../../../proxy/mcp/upstream/errors.ts'
import { type Act, rawMcp, result, sse, type Told, upstreamFor } from './raw-upstream.ts'
import { all, callOf, failure } from './upstream-calls.ts'

export const JSON_TYPE = 'content-type: application/json'
export const SSE_TYPE = 'content-type: text/event-stream'
export const CHUNKED = 'transfer-encoding: chunked'

/** Fails unless one call, head and messages, ends in this kind of failure, after exactly one request. */
export async function fails(
  t: Test,
  act: Act,
  kind: FailureKind,
  options: Partial<McpUpstreamOptions> = {},
): Promise<void> {
  const raw = await rawMcp(t, act)
  const upstream = upstreamFor(t, options)
  const whole = async () => all(await upstream.call(callOf(raw.url)))
  await t.rejects(whole(), failure(kind))
  t.equal(raw.told.length, 1, 'and the request is sent once')
}

/** Ends the connection in the middle of whatever it is. */
export const cut = (res: ServerResponse): void => void res.socket?.destroy()
export const reset = (res: ServerResponse): void => void res.socket?.resetAndDestroy()
export const text = (told: Told): string => JSON.stringify(result(told, { filler: 'x'.repeat(100) }))
export const chunk = (res: ServerResponse, value: string): void =>
  void res.socket?.write(`${Buffer.byteLength(value).toString(16)}\r\n${value}\r\n`)

/** A whole event stream. */
export function endSse(res: ServerResponse, stream: string): void {
  sse(res)
  res.end(stream)
}

/** Once these bytes have left us: a reset may overtake them. */
export const after = (res: ServerResponse, then: (res: ServerResponse) => void): void =>
  void res.socket?.write('', () => then(res))

/** Does it again and again until the connection is gone. */
export function drip(res: ServerResponse, act: () => void): void {
  const { socket } = res
  const next = (): void => {
    if (!socket || socket.destroyed) return
    act()
    setTimeout(next, 5)
  }
  next()
}

/** Writes as fast as it is read, until the connection is gone. */
export function flood(res: ServerResponse, piece: string): void {
  res.on('error', () => {})
  const more = (): void => {
    while (!res.destroyed && res.write(piece));
  }
  res.on('drain', more)
  more()
}
