import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { Refusal } from '../../../plugins/refusal.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import { refusalReply } from '../../../proxy/http/refusal.ts'
import type { Reply } from '../../../proxy/http/reply.ts'
import { sendReply } from '../../../proxy/http/send.ts'
import type { LlmFacts } from '../../../proxy/llm/llm-call.ts'
import { facts } from './facts.ts'
import { portOf } from './upstreams.ts'

interface Test {
  readonly teardown: (handler: () => unknown) => unknown
}

export interface Front {
  /** Without /v1. */
  readonly url: string
  /** The replies that were sent, in order, once they have ended. */
  readonly sent: readonly Reply[]
}

/**
 * A door in front of a handler, without TLS, certificates or ledger: so that real clients can speak to it.
 */
export async function front(t: Test, handler: (facts: LlmFacts) => Promise<Reply>): Promise<Front> {
  const sent: Reply[] = []
  const serve = async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
    const reply = await answerTo(req, res, handler)
    await sendReply(res, reply, { headers: {}, writeStallMs: 60_000, onStream: () => {} })
    sent.push(reply)
  }
  const server = createServer((req, res) => {
    void serve(req, res)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${portOf(server.address())}`, sent }
}

async function answerTo(
  req: IncomingMessage,
  res: ServerResponse,
  handler: (facts: LlmFacts) => Promise<Reply>,
): Promise<Reply> {
  const hangup = new CallHangup()
  res.once('close', () => hangup.hangUp())
  const chunks: Buffer[] = []
  for await (const chunk of req as AsyncIterable<Buffer>) chunks.push(chunk)
  const [path = ''] = (req.url ?? '').split('?')
  const body = Buffer.concat(chunks).toString()
  try {
    return await handler(await facts({ path, headers: req.headers, body, hangup }))
  } catch (error) {
    return refusalReply(
      error instanceof Refusal ? error : new Refusal('internal', { cause: error }),
      'req_test',
    )
  }
}
