interface Deadline {
  /** The time that the work may take. ms. Absent: as long as it likes. */
  readonly ms?: number
  /** Makes the error that a deadline rejects with when the time is over. */
  readonly late?: () => Error
  /** Fires when nobody waits for the work any more; the deadline then rejects with its reason. */
  readonly signal?: AbortSignal
}

/** Waits for `work` until its deadline, and then fires its signal. Drops a later result or rejection. */
export async function withDeadline<Made>(
  { ms, late = () => new Error(`not done within ${ms} ms`), signal }: Deadline,
  work: (signal: AbortSignal) => Promise<Made>,
): Promise<Made> {
  signal?.throwIfAborted()
  const over = new AbortController()
  const { promise, reject } = Promise.withResolvers<never>()
  const end = (reason: unknown): void => {
    reject(reason)
    over.abort(reason)
  }
  const abort = (): void => end(signal?.reason)
  const timer = ms === undefined ? undefined : setTimeout(() => end(late()), ms)
  signal?.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([work(over.signal), promise])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', abort)
  }
}
