import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import type { Test } from 'tap'
import type { Json } from '../gateway.ts'

/** A message as it came to a collector. */
export interface ReceivedMessage {
  readonly signal: string
  readonly headers: IncomingMessage['headers']
  readonly text: string
  readonly json: Json
}

/** A collector on a port of its own that keeps what it takes, and answers as told. */
export interface TestCollector {
  readonly url: string
  readonly received: ReceivedMessage[]
  /** How the requests to come are answered. Default: as a collector does that takes everything. */
  answer: (res: ServerResponse, req: IncomingMessage) => void
  readonly spans: () => readonly Json[]
  /** Resolves once it has received what `ready` waits for. */
  readonly until: (ready: () => boolean) => Promise<void>
}

export async function testCollector(t: Test): Promise<TestCollector> {
  const received: ReceivedMessage[] = []
  const waiting = new Set<() => void>()
  const server = createServer((req, res) => {
    void (async () => {
      const text = (await buffer(req)).toString()
      const signal = (req.url ?? '').replace('/v1/', '')
      received.push({ signal, headers: req.headers, text, json: JSON.parse(text) })
      for (const look of waiting) look()
      collector.answer(res, req)
    })()
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const collector: TestCollector = {
    url: `http://127.0.0.1:${port}`,
    received,
    answer: (res) => void res.writeHead(200, { 'content-type': 'application/json' }).end('{}'),
    spans: () => received.flatMap(({ json }) => json.resourceSpans?.[0].scopeSpans[0].spans ?? []),
    until: (ready) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (!ready()) return
          waiting.delete(look)
          resolve()
        }
        waiting.add(look)
        look()
      }),
  }
  return collector
}

/** The attributes of a span, a record or a point: by name, without their types. */
export const attributesOf = ({ attributes }: Json): Json =>
  Object.fromEntries(
    attributes.map(({ key, value }: Json) => {
      const [only] = Object.values(value)
      return [key, 'intValue' in value ? Number(only) : only]
    }),
  )
