import { Agent, type Dispatcher, request } from 'undici'
import type { Identity } from './identity/identity.ts'
import { jsonMembers } from './refusal.ts'
import { type ClientSession, clientSession } from './signing/session.ts'

/** An answer of the gateway, and its body as text. */
export interface GatewayAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly text: string
}

export interface GatewayRequest {
  /** Default: GET. */
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  /** Sent as JSON. */
  readonly body?: unknown
  /** The time that the gateway may be silent. ms. Default: 30,000. */
  readonly timeoutMs?: number
  /** The sink of the body of a 200, whose `text` is then empty. */
  readonly into?: ((pieces: AsyncIterable<Uint8Array>) => Promise<void>) | undefined
  /** Makes the error of a request that has no answer. Default: undici's own. */
  readonly unreachable?: (error: unknown) => Error
}

/** Asks the gateway once, and reads its answer whole, whatever its status. */
export async function askGateway(
  dispatcher: Dispatcher,
  url: string,
  { method = 'GET', headers = {}, body, timeoutMs = 30_000, into, unreachable }: GatewayRequest = {},
): Promise<GatewayAnswer> {
  const answer = await request(url, {
    // Any method is one that undici sends.
    method: method as Dispatcher.HttpMethod,
    dispatcher,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    headers: {
      accept: 'application/json',
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  }).catch((error: unknown) => {
    throw unreachable?.(error) ?? error
  })
  const { statusCode: status } = answer
  if (!into || status !== 200) return { status, headers: answer.headers, text: await answer.body.text() }
  await into(answer.body)
  return { status, headers: answer.headers, text: '' }
}

/** Opens connections to the gateway: those of a client certificate if there is a key. */
export const gatewayAgent = ({
  ca,
  ...own
}: Pick<Identity, 'ca'> & Partial<Pick<Identity, 'cert' | 'key'>>) =>
  new Agent({ connect: { ca, ...own, rejectUnauthorized: true }, allowH2: false })

type AskAsIdentity = (path: string, asked?: GatewayRequest) => Promise<GatewayAnswer>

/**
 * Works as an identity: it asks by the certificate alone, and with a token and proof from the moment that the
 * gateway demands them. Its connections end with the work.
 */
export async function withIdentity<T>(
  identity: Identity,
  work: (ask: AskAsIdentity) => Promise<T>,
): Promise<T> {
  const { url, ca, cert, key } = identity
  const bare = gatewayAgent({ ca, cert, key })
  let signed: ClientSession | undefined
  const ask: AskAsIdentity = async (path, asked) => {
    const answer = await askGateway(signed?.dispatcher ?? bare, url + path, asked)
    const isRefused = answer.status === 401 && jsonMembers(answer.text).reason === 'proof_required'
    if (signed || !isRefused) return answer
    // A clock makes it a session of its own, which is closed with this work.
    signed = clientSession(identity, { now: Date.now })
    return askGateway(signed.dispatcher, url + path, asked)
  }
  try {
    return await work(ask)
  } finally {
    await Promise.all([bare.destroy(), signed?.close()])
  }
}
