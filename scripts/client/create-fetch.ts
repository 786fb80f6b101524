import { fetch, type RequestInit } from 'undici'
import { type Identity, readIdentity } from './identity/identity.ts'
import { moveOnCalls } from './renewal/keep-renewed.ts'
import { clientSession, type SessionOptions } from './signing/session.ts'

/** The standard `fetch`. */
export type Fetch = typeof globalThis.fetch

export interface FetchOptions extends Omit<SessionOptions, 'directory'> {
  /** The gateway's base URL, in place of the one in `gateway.json`. */
  readonly url?: string
  /**
   * The time after which a call has the gateway asked whether its CA is being replaced: the directory of the
   * identity then gets the new roots, and a certificate of the new CA. ms. Default: 10 minutes. 0: never, for
   * an identity that lies on several machines, one of which renews it.
   */
  readonly followCaEveryMs?: number
}

/**
 * Makes a `fetch` that goes to the gateway and nowhere else, as this identity: mutual TLS, one access token
 * for the whole process, and a fresh DPoP proof for every attempt (docs/protocol.md#proofs). For the `fetch`
 * option of the OpenAI, Anthropic, AI SDK and MCP clients, whose own `authorization` and `x-api-key` are
 * dropped, unless the gateway says that a provider is called with them.
 *
 * `identity`: a directory as `sallyport agent` writes it, or its content. Replaced files of a directory are
 * used from the next call on, a second later at most, and once certificate and key belong together. Throws
 * one sentence if it is not whole. The fetch rejects if the URL is of another origin. It never follows a
 * redirect, and sets no limit to how long an answer may stream: pass a `signal`. A streamed request body is
 * kept up to 32 MiB for a second attempt; after more than that a refusal that a second attempt could cure is
 * the answer.
 */
export function createFetch(identity: string | Identity, options: FetchOptions = {}): Fetch {
  const { url, followCaEveryMs: everyMs, ...rest } = options
  const followCa =
    typeof identity === 'string' && everyMs !== 0
      ? moveOnCalls({ directory: identity, url, everyMs, notice: options.notice ?? (() => {}) })
      : () => {}
  const session =
    typeof identity === 'string'
      ? clientSession(readIdentity(identity, url), { ...rest, directory: identity })
      : clientSession(identity, rest)
  const signed = async (input: string | URL | Request, init?: globalThis.RequestInit) => {
    const [target, request] = await plainRequest(input, init)
    if (URL.parse(target)?.origin !== session.origin) {
      throw new TypeError(`this fetch is for ${session.origin} only, and was asked for ${target}`)
    }
    followCa()
    return fetch(target, { ...request, redirect: 'manual', dispatcher: session.dispatcher })
  }
  // The types of undici and of Node describe one interface twice.
  return signed as unknown as Fetch
}

/** Returns the request without classes of Node's own fetch, which undici's does not know. */
async function plainRequest(
  input: string | URL | Request,
  init: globalThis.RequestInit = {},
): Promise<[url: string, init: RequestInit]> {
  if (typeof input === 'string' || input instanceof URL) return [String(input), await withOwnForm(init)]
  const { url, method, headers, body, signal } = input
  const merged = { method, headers, signal, ...(body && { body, duplex: 'half' as const }), ...init }
  return [url, await withOwnForm(merged)]
}

async function withOwnForm(init: globalThis.RequestInit): Promise<RequestInit> {
  // Two descriptions of one interface, as above.
  const own = init as unknown as RequestInit
  if (!(init.body instanceof FormData)) return own
  const form = new Response(init.body)
  const headers = new Headers(init.headers)
  headers.set('content-type', form.headers.get('content-type') ?? '')
  return { ...own, headers: [...headers], body: Buffer.from(await form.arrayBuffer()) }
}
