import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'

/** One request as the provider's side saw it. */
export interface Seen {
  readonly method: string
  readonly url: string
  readonly headers: IncomingMessage['headers']
  readonly rawHeaders: readonly string[]
  readonly body: Buffer
}

export type Answer = (res: ServerResponse, seen: Seen) => void | Promise<void>

/** A provider on a port of its own that remembers what it was sent and answers as told. */
export interface TestUpstream {
  readonly url: string
  /** All that came but the gateway's own readings of the list of models: they come when they like. */
  readonly seen: Seen[]
  /** Those readings. Each is answered with an empty list, whatever {@link answer} is. */
  readonly readings: readonly Seen[]
  /** How the requests to come are answered. */
  answer: Answer
  readonly server: Server
}

/** The answer of {@link testUpstream} until a test sets another: a small chat completion with its usage. */
export const completion: Answer = (res, { body }) => {
  // The model that is asked for: another one would need an operator.
  const [, model = 'gpt-test'] = /"model":"([^"\\]*)"/.exec(body.toString()) ?? []
  res.setHeader('content-type', 'application/json')
  res.end(
    JSON.stringify({
      id: 'chatcmpl-1',
      object: 'chat.completion',
      created: 1,
      model,
      choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hello' } }],
      usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
    }),
  )
}

/** On a connection that is not used again: whichever call comes next, its connection is its own. */
const noModels: Answer = (res) => {
  res.setHeader('connection', 'close').setHeader('content-type', 'application/json')
  res.end('{"object":"list","data":[]}')
}

const isReading = ({ method, url }: Seen): boolean => method === 'GET' && /^\/v1\/models(\?|$)/.test(url)

/** Starts a provider; it stops with the test. */
export async function testUpstream(t: Test, answer: Answer = completion): Promise<TestUpstream> {
  const seen: Seen[] = []
  const readings: Seen[] = []
  const server = createServer((req, res) => {
    void (async () => {
      const { method = '', url = '', headers, rawHeaders } = req
      // Null: whoever asks was killed in the middle of it, so nothing was asked.
      const body = await buffer(req).catch(() => null)
      if (body === null) return
      const request = { method, url, headers, rawHeaders, body }
      if (isReading(request)) {
        readings.push(request)
        await noModels(res, request)
        return
      }
      seen.push(request)
      await upstream.answer(res, request)
    })()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  const { port } = server.address() as AddressInfo
  const upstream: TestUpstream = { url: `http://127.0.0.1:${port}`, seen, readings, answer, server }
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return upstream
}
