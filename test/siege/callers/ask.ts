import type { IncomingHttpHeaders } from 'node:http'
import { Agent, request } from 'node:https'
import { text } from 'node:stream/consumers'
import type { Identity } from '../../bench/ground/ground.ts'

/** The time that an honest caller waits for the whole of an answer. ms. */
const PATIENCE_MS = 10_000
/** The connections that one caller keeps at most. */
const CONNECTIONS = 16

export interface Answer {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly body: string
}

export interface Question {
  readonly method: string
  readonly path: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string
}

/** Asks the gateway, over connections that are kept. Rejects where no whole answer came in time. */
export type Ask = (question: Question) => Promise<Answer>

/** `keeps`: false for a caller whose every question has a connection of its own. */
export function asker(port: number, { ca, cert, key }: Partial<Identity>, keeps = true): Ask {
  const agent = new Agent({ ca, cert, key, keepAlive: keeps, maxSockets: CONNECTIONS })
  return ({ method, path, headers = {}, body = '' }) => {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>()
    const length = body === '' ? {} : { 'content-length': String(Buffer.byteLength(body)) }
    const req = request({
      host: '127.0.0.1',
      port,
      servername: 'localhost',
      agent,
      method,
      path,
      headers: { host: 'localhost', 'content-type': 'application/json', ...length, ...headers },
    })
    const late = setTimeout(() => req.destroy(new Error(`no answer in ${PATIENCE_MS} ms`)), PATIENCE_MS)
    req.once('close', () => clearTimeout(late))
    req.on('error', reject)
    req.on('response', (res) => {
      text(res).then(
        (read) => resolve({ status: res.statusCode ?? 0, headers: res.headers, body: read }),
        reject,
      )
    })
    req.end(body)
    return promise
  }
}

/** The reason of a refusal, in a few words. */
export const reasonOf = ({ body }: Answer): string =>
  /"reason": ?"([a-z_]+)"/.exec(body)?.[1] ?? body.slice(0, 60)
