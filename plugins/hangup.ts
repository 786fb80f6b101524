import type { Hangup } from './arrival.ts'

/** Returns the hang-up that a signal tells of. */
export const hangupBy = (signal: AbortSignal): Hangup => ({
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
