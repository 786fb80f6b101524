import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Test } from 'tap'
import { trusted } from './llm/trusted.ts'

/** A message as somebody got it. */
interface HookMessage {
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

export interface HookReceiver {
  readonly url: string
  readonly messages: HookMessage[]
  /** Says how it answers from now on; a status that is not 2xx takes nothing. */
  readonly answer: (status: number) => void
}

/** Starts somebody who is told of events, over TLS that this process trusts. */
export async function hookReceiver(t: Test): Promise<HookReceiver> {
  const messages: HookMessage[] = []
  let status = 204
  const server = createServer(await trusted(t), (req, res) => {
    const headers = Object.fromEntries(
      Object.entries(req.headers).map(([name, value]) => [name, String(value)]),
    )
    void text(req).then((body) => {
      messages.push({ path: req.url ?? '', headers, body })
      res.writeHead(status, { location: 'https://elsewhere.test/' }).end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  })
  return {
    url: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    messages,
    answer: (next) => {
      status = next
    },
  }
}
