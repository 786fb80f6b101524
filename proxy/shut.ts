import type { Logger } from 'pino'
import type { Control } from './http/control-socket.ts'
import type { Services } from './services.ts'
import { recordAnonymousRefusals } from './tasks/tend-ledger.ts'

interface ShutdownOptions {
  readonly services: Services
  readonly control: Control
  readonly note: (action: string, detail: Record<string, string | number>) => Promise<unknown>
  readonly digest: () => string
  /** Ends the background tasks; resolves when none needs database or ledger any more. */
  readonly stop: () => Promise<unknown>
  /** Ends what the configuration in force keeps ready. */
  readonly checks: () => Promise<void>
  /** How long calls under way may go on. */
  readonly graceMs: number
}

/**
 * Stops in order (SECURITY F-30): nothing new is accepted, what is under way ends or is cut when its grace is over, every
 * outcome is written, and only then are ledger and database let go. Never rejects for a ledger that fails meanwhile.
 */
export async function shutdown({
  services,
  control,
  note,
  digest,
  stop,
  checks,
  graceMs,
}: ShutdownOptions): Promise<void> {
  const { dataDirectory, ledger, outcomes, anonymous, drain, upstream, mcp, clock, logs } = services
  const { listeners } = services.doors
  drain.begin()
  await stop()
  const closed = listeners?.close()
  await drain.finish(graceMs)
  await outcomes.flushed()
  listeners?.destroy()
  await closed
  await control.close()
  // A request whose head was still on its way came after all: nothing can come any more.
  await drain.finish(0)
  await outcomes.flushed()
  await outcomes.retry()
  await recordAnonymousRefusals({ ledger, anonymous, configDigest: digest, clock }).catch(logged(logs.log))
  if (listeners) await note('service.stopped', {}).catch(logged(logs.log))
  await checks()
  upstream.close()
  await mcp.close()
  await dataDirectory.close()
  logs.flush()
}

const logged =
  (log: Logger) =>
  (error: unknown): void =>
    log.error({ err: error }, 'the ledger could not be written while stopping')
