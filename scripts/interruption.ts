/**
 * Aborts at Ctrl-C, SIGTERM, or when nobody reads on. `why`: the reason; if nobody reads, it is standard
 * output's error.
 */
export function interruption(why: string): AbortSignal {
  const controller = new AbortController()
  const abort = (): void => controller.abort(new Error(why))
  process.once('SIGINT', abort)
  process.once('SIGTERM', abort)
  process.stdout.on('error', (error) => controller.abort(error))
  return controller.signal
}
