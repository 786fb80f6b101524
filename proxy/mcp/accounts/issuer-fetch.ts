import { hostRefusal } from '../../egress/address.ts'
import { egressAgent, type ResolveHost } from '../../egress/agent.ts'
import { type BoundedFetchInit, boundedFetch } from '../../egress/bounded-fetch.ts'
import { IssuerUnavailable } from './accounts.ts'

/** The time that an issuer may take for one answer, from the name look-up on. ms. */
export const ISSUER_ANSWER_MS = 5_000
/** The longest answer of an issuer. Bytes. */
export const MAX_ISSUER_ANSWER_BYTES = 64 * 1024

const BOUNDS = { ms: ISSUER_ANSWER_MS, bytes: MAX_ISSUER_ANSWER_BYTES }

export type IssuerFetch = (text: string | URL, init: BoundedFetchInit) => Promise<Response>

interface IssuerEgress {
  /** MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS. */
  readonly allowPrivate: boolean
  readonly resolve?: ResolveHost
}

/**
 * Makes the function that asks issuers: at judged addresses, by https, without a redirect, within the limits
 * above. Rejects with {@link IssuerUnavailable}, also for an answer that it failed or is overloaded; the cause
 * is left out, for it may quote what was sent.
 */
export function issuerFetch({ allowPrivate, resolve }: IssuerEgress): IssuerFetch {
  const agent = egressAgent({
    allowPrivate,
    connectMs: ISSUER_ANSWER_MS,
    answerMs: ISSUER_ANSWER_MS,
    keepAlive: false,
    ...(resolve && { resolve }),
  })
  return async (text, init) => {
    const url = new URL(text)
    if (!isSafeAddress(url, allowPrivate)) throw new IssuerUnavailable(`${url.origin} is not asked`)
    const answer = await boundedFetch(agent, url, init, BOUNDS).catch(() => {
      throw new IssuerUnavailable(`${url.origin} did not answer in time, or not within 64 KiB`)
    })
    const { status } = answer
    if (status === 429 || status >= 500 || (status >= 300 && status < 400))
      throw new IssuerUnavailable(`${url.origin} answered ${status}`)
    return answer
  }
}

/** True for https; and for http to a host that is private by its name alone, where these are allowed. */
export function isSafeAddress(url: URL, allowPrivate: boolean): boolean {
  if (url.username !== '' || url.password !== '') return false
  if (url.protocol === 'https:') return true
  const reason = hostRefusal(url, false)
  return allowPrivate && url.protocol === 'http:' && (reason === 'loopback' || reason === 'private')
}
