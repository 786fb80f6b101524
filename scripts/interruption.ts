/**
 * Aborts at Ctrl-C, when this process is told to end, or when nobody reads on. `why`: the sentence of the
 * reason; if nobody reads, the reason is the error of standard output.
 */
export function interruption(why: string): AbortSignal {
  const controller = new AbortController()
  const abort = (): void => controller.abort(new Error(why))
  process.once('SIGINT', abort)
  process.once('SIGTERM', abort)
  process.stdout.on('error', (error) => controller.abort(error))
  return controller.signal
}
