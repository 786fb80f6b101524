import { EventEmitter } from 'node:events'
import type { ClientRequest, IncomingMessage, ServerResponse } from 'node:http'
import type { Stream } from 'node:stream'
import type { ServerOptions } from 'http-proxy-3'

/*
 * The objects that http-proxy-3 gets in place of a caller's request and response. Each has the members that the library
 * reads, and nothing that came from outside. `test/proxy/llm/upstream/contract.test.ts` fails when it reads another.
 */

/** Answers are handed back, not written; the target alone decides the path; TLS is verified. */
export const FENCE: Readonly<ServerOptions> = { selfHandleResponse: true, ignorePath: true, secure: true }

interface RequestHead {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
}

/** Stands for the caller's request. */
export function requestStandIn({ method, headers }: RequestHead): IncomingMessage {
  const standIn = Object.assign(new EventEmitter(), {
    method,
    url: '/',
    headers: { ...headers },
    httpVersionMajor: 1,
    socket: { destroyed: false },
  })
  // These members are all that the library reads.
  return standIn as unknown as IncomingMessage
}

/**
 * Stands for the caller's response. Its event `close` makes the library destroy the request, at whatever
 * stage that is.
 */
export function responseStandIn(): ServerResponse {
  const members = { headersSent: false, writableFinished: false, finished: false }
  // These members, and `on`, are all that the library reads.
  return Object.assign(new EventEmitter(), members) as unknown as ServerResponse
}

/**
 * Stands for a stream of the body: the library pipes it to the outgoing request, which gets it in one write.
 */
export function bodyStandIn(body: Buffer | null): Stream {
  const standIn = { pipe: (destination: ClientRequest) => destination.end(body ?? undefined) }
  // `pipe` is all that the library calls.
  return standIn as unknown as Stream
}
