import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Test } from 'tap'

/** One question as the agent saw it. */
export interface Asked {
  readonly url: string
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

export interface PolicyServer {
  /** Of the rule that is asked. */
  readonly url: string
  readonly asked: readonly Asked[]
  /** How the questions to come are answered. */
  answer: (res: ServerResponse, asked: Asked) => void
}

/** What the Data API answers with: 200 and JSON. */
export const data =
  (body: unknown) =>
  (res: ServerResponse): void => {
    res.setHeader('content-type', 'application/json')
    res.end(JSON.stringify(body))
  }

/** A policy agent on a port of its own that says yes until a test says otherwise. It stops with the test. */
export async function policyServer(t: Test): Promise<PolicyServer> {
  const asked: Asked[] = []
  const server = createServer((req, res) => {
    void text(req).then((body) => {
      const question = { url: `${req.method} ${req.url}`, headers: req.headers, body }
      asked.push(question)
      agent.answer(res, question)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  // Proven by listening on a port.
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/v1/data/sallyport/allow`
  const agent: PolicyServer = { url, asked, answer: data({ result: true }) }
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return agent
}
