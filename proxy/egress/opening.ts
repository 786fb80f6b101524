import { AsyncLocalStorage } from 'node:async_hooks'

/**
 * The connection that is being opened for one request: `end` ends it. undici goes on opening it when the
 * request is given up, so that descriptors would pile up (docs/threats.md#pools).
 */
export interface OpeningConnection {
  end: ((reason: Error) => void) | null
}

/** Holds, while a request is dispatched, the connection that is opened for it alone. */
export const openingStorage = new AsyncLocalStorage<OpeningConnection>()

/** Registers how to end the connection that is opened now. Call the result once it is open or failed. */
export function trackOpening(end: (reason: Error) => void): () => void {
  const opening = openingStorage.getStore()
  if (!opening) return () => {}
  opening.end = end
  return () => {
    if (opening.end === end) opening.end = null
  }
}

export const CONNECTION_ABANDONED = new Error('nobody waits for the connection any more')
