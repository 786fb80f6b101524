import type { HangupSignal } from './arrival.ts'

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
