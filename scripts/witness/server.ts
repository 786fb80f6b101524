import { isUtf8 } from 'node:buffer'
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import { createServer as createTlsServer, type ServerOptions } from 'node:https'
import type { WitnessAnswer } from './witness.ts'

/** Bytes of a request: a proof has at most 63 lines, a note a hundred. */
const BODY_LIMIT = 65_536
const CONNECTIONS = 256
/** The time that a request may take to come. ms. */
const PATIENCE_MS = 10_000

/** Path of a log's checkpoint: C2SP tlog-witness, Monitor Retrieval Mechanism. */
const CHECKPOINT_PATH = /\/([0-9a-f]{64})\/checkpoint$/

interface WitnessServerOptions {
  readonly answer: (body: string) => Promise<WitnessAnswer>
  /** The last note cosigned for the log whose origin has this SHA-256, in hex; null if there is none. */
  readonly kept: (digest: string) => Promise<string | null>
  readonly tls: Pick<ServerOptions, 'cert' | 'key'> | null
  readonly onFault: (error: unknown) => void
}

/**
 * Makes the server of a witness, not yet listening: POST …/add-checkpoint and GET …/<SHA-256 of the
 * origin>/checkpoint.
 */
export function witnessServer({ answer, kept, tls, onFault }: WitnessServerOptions): Server {
  const serve: RequestListener = (req, res) => {
    const reply = (status: number, body: string, type = 'text/plain; charset=utf-8'): void => {
      const closing = req.complete ? {} : { connection: 'close' }
      res.writeHead(status, { 'content-type': type, ...closing }).end(body)
    }
    const failed = (said: string) => (error: unknown) => {
      onFault(error)
      reply(500, said)
    }
    const [, digest] = CHECKPOINT_PATH.exec(req.url ?? '') ?? []
    if (digest !== undefined && req.method === 'GET') {
      kept(digest)
        .then((note) => (note === null ? reply(404, 'of this log nothing was cosigned\n') : reply(200, note)))
        .catch(failed('the witness cannot read it\n'))
      return
    }
    if (!req.url?.endsWith('/add-checkpoint')) return reply(404, 'there is nothing here but add-checkpoint\n')
    if (req.method !== 'POST') return reply(405, 'a checkpoint is added by POST\n')
    bodyOf(req)
      .then(async (body) => {
        if (body === null) return reply(413, `a request has at most ${BODY_LIMIT} bytes\n`)
        if (!isUtf8(body)) return reply(400, 'a request is text\n')
        const { status, body: said, type } = await answer(body.toString())
        reply(status, said, type)
      })
      .catch(failed('the witness cannot remember it, and so signs nothing\n'))
  }
  const options = { requestTimeout: PATIENCE_MS, headersTimeout: PATIENCE_MS, maxHeaderSize: 8_192 }
  const server = tls ? createTlsServer({ ...options, ...tls }, serve) : createServer(options, serve)
  server.maxConnections = CONNECTIONS
  return server
}

async function bodyOf(req: IncomingMessage): Promise<Buffer | null> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of req as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > BODY_LIMIT) return null
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}
