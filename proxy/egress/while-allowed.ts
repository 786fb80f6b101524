import type { Dispatcher } from 'undici'
import { type CallAuthority, OVERTAKEN } from '../../plugins/call-authority.ts'

/**
 * A handler of a request that fails with {@link OVERTAKEN}, before a byte has gone out, if the basis of its
 * call's permission has changed. Hands everything else on as it is.
 */
export class AllowedDispatchHandler implements Dispatcher.DispatchHandler {
  readonly #handler: Dispatcher.DispatchHandler
  readonly #authority: CallAuthority

  constructor(handler: Dispatcher.DispatchHandler, authority: CallAuthority) {
    this.#handler = handler
    this.#authority = authority
  }

  onRequestStart(controller: Dispatcher.DispatchController, context: unknown): void {
    if (!this.#authority.unchanged) throw OVERTAKEN
    this.#handler.onRequestStart?.(controller, context)
  }

  onResponseStart(...told: Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseStart']>>): void {
    this.#handler.onResponseStart?.(...told)
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#handler.onResponseData?.(controller, chunk)
  }

  onResponseEnd(...told: Parameters<NonNullable<Dispatcher.DispatchHandler['onResponseEnd']>>): void {
    this.#handler.onResponseEnd?.(...told)
  }

  onResponseError(controller: Dispatcher.DispatchController, error: Error): void {
    this.#handler.onResponseError?.(controller, error)
  }
}
