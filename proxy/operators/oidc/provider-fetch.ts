import type { Agent } from 'undici'
import { collectBytes } from '../../../plugins/collect.ts'
import { withDeadline } from '../../../plugins/deadline.ts'

/** The time that the provider may take for one answer, from the name look-up on. ms. */
export const PROVIDER_ANSWER_MS = 5_000
/** The longest answer of the provider. Bytes. */
export const MAX_PROVIDER_ANSWER_BYTES = 256 * 1024

/** The provider cannot be asked, or gives an invalid answer. For the log: the message may name an address. */
export class ProviderUnavailable extends Error {
  override readonly name = 'ProviderUnavailable'
}

interface ProviderFetchInit {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: unknown
}

/**
 * Makes the function that asks the identity provider. It goes where `isOurs` says and nowhere else, follows
 * no redirect, and takes no longer and no more than the limits above. Rejects with {@link
 * ProviderUnavailable}, also for an answer of the provider's that it failed or is overloaded.
 */
export const providerFetch =
  (agent: Agent, isOurs: (url: URL) => boolean) =>
  async (text: string, { method, headers, body }: ProviderFetchInit): Promise<Response> => {
    const url = new URL(text)
    if (!isOurs(url)) throw new ProviderUnavailable(`${url.origin} is not an origin of the provider`)
    try {
      return await withDeadline({ ms: PROVIDER_ANSWER_MS }, async (signal) => {
        const answer = await agent.request({
          origin: url.origin,
          path: url.pathname + url.search,
          method: method === 'POST' ? 'POST' : 'GET',
          headers: { ...headers, 'accept-encoding': 'identity' },
          body: body instanceof URLSearchParams || typeof body === 'string' ? String(body) : null,
          signal,
        })
        const { statusCode: status } = answer
        const bytes = await collectBytes(answer.body, MAX_PROVIDER_ANSWER_BYTES)
        if (bytes === null) throw new ProviderUnavailable('its answer is too long')
        if (status === 429 || status < 200 || status >= 500 || isRedirect(status))
          throw new ProviderUnavailable(`it answered ${status}`)
        const type = String(answer.headers['content-type'] ?? '')
        return new Response(status === 204 ? null : Uint8Array.from(bytes), {
          status,
          headers: { 'content-type': type },
        })
      })
    } catch (error) {
      if (error instanceof ProviderUnavailable) throw error
      throw new ProviderUnavailable('it did not answer', { cause: error })
    }
  }

const isRedirect = (status: number): boolean => status >= 300 && status < 400
