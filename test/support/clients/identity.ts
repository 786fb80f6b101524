import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { mkdir, writeFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { join } from 'node:path'
import type { Test } from 'tap'
import { type Json, scratch, type TestGateway } from '../gateway.ts'

/** Enrolls an agent and writes its identity as `sallyport agent` does. */
export async function identityDirectory(
  t: Test,
  gateway: TestGateway,
  capabilities: readonly string[] = ['llm.chat'],
): Promise<string> {
  const { id, cert, key } = await gateway.enroll('bot', capabilities)
  const directory = join(await scratch(t), 'bot')
  await mkdir(directory)
  const files = {
    'agent.crt': cert,
    'agent.key': key,
    'org-ca.crt': gateway.ca,
    'gateway.json': JSON.stringify({ url: gateway.url, agent_id: id }),
  }
  for (const [name, text] of Object.entries(files)) {
    await writeFile(join(directory, name), text, { mode: 0o600 })
  }
  return directory
}

/** One request as the gateway's listener saw it. */
export interface Arrived {
  readonly method: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  /** The claims of its DPoP proof; null where it had none. */
  readonly proof: Json
}

/** Every request from now on that reaches the gateway, in the order of arrival. */
export function arrivals(t: Test, { url }: TestGateway): readonly Arrived[] {
  const seen: Arrived[] = []
  const port = Number(new URL(url).port)
  const hear = (message: unknown): void => {
    // What Node says on this channel (node:diagnostics_channel, http.server.request.start).
    const { request } = message as { request: IncomingMessage }
    if (request.socket.localPort !== port) return
    const { method = '', url: path = '', headers } = request
    seen.push({ method, path, headers, proof: claimsOf(headers.dpop) })
  }
  subscribe('http.server.request.start', hear)
  t.teardown(() => void unsubscribe('http.server.request.start', hear))
  return seen
}

/** Those to the token endpoint. */
export const tokenRequests = (seen: readonly Arrived[]): readonly Arrived[] =>
  seen.filter(({ path }) => path === '/v1/auth/token')

function claimsOf(proof: string | string[] | undefined): Json {
  const [, claims] = String(proof ?? '').split('.')
  return claims === undefined ? null : JSON.parse(Buffer.from(claims, 'base64url').toString())
}

/** A clock that stands still until it is moved. `now`: ms since the epoch. */
export interface Clock {
  readonly now: () => number
  readonly move: (seconds: number) => void
}

export function clock(): Clock {
  let at = Date.now()
  return {
    now: () => at,
    move: (seconds) => {
      at += seconds * 1000
    },
  }
}
