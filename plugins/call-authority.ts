import type { CallAuthority, HangupSignal } from './arrival.ts'
import { Refusal } from './refusal.ts'

export type { CallAuthority } from './arrival.ts'

/** The authority of this gateway's own requests, on nobody's behalf. Nobody can revoke it. */
export const OWN_AUTHORITY: CallAuthority = { unchanged: true, confirm: () => Promise.resolve() }

export const hangupFromSignal = (signal: AbortSignal): HangupSignal => ({
  signal,
  get gone() {
    return signal.aborted
  },
  get reason() {
    return signal.reason
  },
  onGone: (told) => signal.addEventListener('abort', told, { once: true }),
  offGone: (told) => signal.removeEventListener('abort', told),
})

/** The error by which a request is taken back from its connection before a byte went out. */
export const OVERTAKEN = new Error('what decisions are made by changed before the request went out')

/** Changes that come one after the other must not refuse a call that all of them allow. */
const MAX_CONFIRMATIONS = 8

/**
 * Resolves when the call would be allowed now and nothing has changed since. Rejects with
 * `authority_revoked`; with `overloaded` if changes follow each other without a pause; with a
 * DatabaseUnavailable.
 */
export async function confirmAuthority(authority: CallAuthority): Promise<void> {
  for (let times = 0; !authority.unchanged; times += 1) {
    if (times === MAX_CONFIRMATIONS) throw new Refusal('overloaded', { headers: { 'retry-after': '1' } })
    await authority.confirm()
  }
}
