import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import type { Scope } from './scope.ts'

/** A request that reached the provider. */
export interface Reached {
  readonly model: string
  /** ms of the process's clock. */
  readonly at: number
  /** When its connection was closed before it was answered whole; null while it was not. */
  closedAt: number | null
  /** Whether a durable decision stood in the ledger at that instant. Null: the ledger could not be asked. */
  decided: boolean | null
}

/** A provider that looks into the ledger at each request, before it answers. */
export interface Provider {
  readonly url: string
  readonly reached: Reached[]
}

/**
 * Starts a provider. A model's name says how it is answered: `gpt-open-…` is streamed without end, `gpt-wait-…` is
 * never answered, every other one is a small completion. For `gpt-herd-…` it does not look: they are too many at
 * once. `decided` tells whether the ledger has an allowed row of a
 * model; it rejects where the ledger cannot be asked.
 */
export async function provider(
  scope: Scope,
  decided: (model: string) => Promise<boolean>,
): Promise<Provider> {
  const reached: Reached[] = []
  const serve = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    if (req.method === 'GET') {
      res.setHeader('connection', 'close').setHeader('content-type', 'application/json')
      return void res.end('{"object":"list","data":[]}')
    }
    const body = await buffer(req).catch(() => null)
    // Whoever asked was killed in the middle of it: nothing was asked.
    if (body === null) return
    const one: Reached = {
      model: JSON.parse(body.toString()).model,
      at: performance.now(),
      closedAt: null,
      decided: null,
    }
    reached.push(one)
    res.once('close', () => {
      if (!res.writableFinished) one.closedAt = performance.now()
    })
    one.decided = one.model.startsWith('gpt-herd-') ? null : await decided(one.model).catch(() => null)
    answer(res, one.model)
  }
  const server = createServer((req, res) => void serve(req, res))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  scope.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, reached }
}

function answer(res: ServerResponse, model: string): void {
  if (model.startsWith('gpt-wait-')) return
  if (model.startsWith('gpt-open-'))
    return void res.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n')
  res.setHeader('content-type', 'application/json').end(COMPLETION)
}

const COMPLETION = JSON.stringify({
  id: 'chatcmpl-1',
  object: 'chat.completion',
  created: 1,
  model: 'gpt-test',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hello' } }],
  usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 },
})
