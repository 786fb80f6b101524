import { parseArgs } from 'node:util'
import './boot/no-debugger.ts'
import './boot/v8-flags.ts'
import { refuseUnsafeRuntime } from './boot/runtime-check.ts'
import type { Settings } from './boot/settings.ts'
import { escapeHiddenLines } from './visible.ts'
import type { Gateway } from './wiring/gateway.ts'

const HELP = `usage: node proxy/main.ts [--accept-rollback REASON]

Starts the gateway. It is configured by MCP_PROXY_* variables and the files of plugins/config (see README.md).
SIGHUP reads the files and the server certificate again; SIGTERM and SIGINT drain and stop.
--accept-rollback: start although an anchor knows of rows that are missing here, as a log of a new name (docs/operating.md).
`

if (process.argv.includes('--help') || process.argv.includes('-h')) {
  process.stdout.write(HELP)
} else {
  await main().catch((error: unknown) => {
    process.stderr.write(
      `sallyport: ${escapeHiddenLines(error instanceof Error ? error.message : String(error))}\n`,
    )
    process.exit(1)
  })
}

async function main(): Promise<void> {
  refuseUnsafeRuntime(process)
  const accepting = acceptRollbackIn(process.argv.slice(2))
  // Only now: on a Node that is too old the native modules would crash before any message.
  const { readSettings } = await import('./boot/settings.ts')
  const settings = readSettings(process.env, process.cwd())
  const [{ startGateway }, { nextSteps }] = await Promise.all([
    import('./wiring/gateway.ts'),
    import('./wiring/next-steps.ts'),
  ])
  const gateway = await startGateway(settings, accepting)
  // Before anybody is told that it is ready: a reader of that may send a signal at once.
  heedSignals(gateway, settings)
  process.stderr.write(await nextSteps(settings, gateway))
  const { url, adminUrl: admin_url, peoplePort: people_port } = gateway
  const ready = { msg: 'ready', url, admin_url, ...(people_port !== null && { people_port }) }
  process.stdout.write(`${JSON.stringify(ready)}\n`)
}

/** The command line's word on a rollback. Throws one sentence if it gives no reason, or another word. */
function acceptRollbackIn(args: readonly string[]): { readonly acceptRollback?: string } {
  const options = { 'accept-rollback': { type: 'string' } } as const
  const { values, positionals } = parseArgs({ args: [...args], options, allowPositionals: true })
  // `sallyport start` runs this too.
  const [other] = positionals.filter((word, i) => i > 0 || word !== 'start')
  if (other !== undefined) throw new Error(`unexpected argument ${JSON.stringify(other)}: see --help`)
  const reason = values['accept-rollback']?.trim()
  if (reason === undefined) return {}
  if (reason === '') throw new Error('--accept-rollback needs a reason, which the ledger keeps')
  return { acceptRollback: reason }
}

function heedSignals(gateway: Gateway, { drainDelayMs: delayMs }: Pick<Settings, 'drainDelayMs'>): void {
  const stop = (code: number, ...how: Parameters<Gateway['close']>): void => {
    void gateway.close(...how).then(() => process.exit(code))
  }
  process.on('SIGTERM', (why) => stop(0, undefined, { why, delayMs }))
  // A person at a terminal, and no balancer, waits for this one.
  process.on('SIGINT', (why) => stop(0, undefined, { why }))
  process.on('SIGHUP', () => void gateway.reload())
  const fault = (error: unknown): void => {
    process.stderr.write(
      `sallyport: stopping: ${escapeHiddenLines(error instanceof Error ? error.message : String(error))}\n`,
    )
    stop(1, 2_000, { why: 'fault' })
  }
  process.on('uncaughtException', fault)
  process.on('unhandledRejection', fault)
  void gateway.failed.then(fault)
}
