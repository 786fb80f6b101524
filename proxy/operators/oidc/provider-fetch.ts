import type { Agent } from 'undici'
import { AnswerTooLong, type BoundedFetchInit, boundedFetch } from '../../egress/bounded-fetch.ts'

/** The time that the provider may take for one answer, from the name look-up on. ms. */
export const PROVIDER_ANSWER_MS = 5_000
/** The longest answer of the provider. Bytes. */
export const MAX_PROVIDER_ANSWER_BYTES = 256 * 1024

/** The provider cannot be asked, or gives an invalid answer. For the log: the message may name an address. */
export class ProviderUnavailable extends Error {
  override readonly name = 'ProviderUnavailable'
}

const BOUNDS = { ms: PROVIDER_ANSWER_MS, bytes: MAX_PROVIDER_ANSWER_BYTES }

/**
 * Makes the function that asks the identity provider. It goes where `isOurs` says and nowhere else, follows
 * no redirect, and takes no longer and no more than the limits above. Rejects with {@link
 * ProviderUnavailable}, also for an answer of the provider's that it failed or is overloaded.
 */
export const providerFetch =
  (agent: Agent, isOurs: (url: URL) => boolean) =>
  async (text: string, init: BoundedFetchInit): Promise<Response> => {
    const url = new URL(text)
    if (!isOurs(url)) throw new ProviderUnavailable(`${url.origin} is not an origin of the provider`)
    const answer = await boundedFetch(agent, url, init, BOUNDS).catch((error: unknown) => {
      if (error instanceof AnswerTooLong) throw new ProviderUnavailable(error.message)
      throw new ProviderUnavailable('it did not answer', { cause: error })
    })
    const { status } = answer
    if (status === 429 || status >= 500 || (status >= 300 && status < 400))
      throw new ProviderUnavailable(`it answered ${status}`)
    return answer
  }
