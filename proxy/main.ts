import './no-debugger.ts'
import './v8-flags.ts'
import type { Gateway } from './gateway.ts'
import { refuseUnsafeRuntime } from './runtime-check.ts'

const HELP = `usage: node proxy/main.ts

Starts the gateway. It is configured by MCP_PROXY_* variables and the files of plugins/config (see README.md).
SIGHUP reads the files and the server certificate anew; SIGTERM and SIGINT drain and stop.
`

if (process.argv.includes('--help')) {
  process.stdout.write(HELP)
} else {
  await main().catch((error: unknown) => {
    process.stderr.write(`sallyport: ${error instanceof Error ? error.message : String(error)}\n`)
    process.exit(1)
  })
}

async function main(): Promise<void> {
  refuseUnsafeRuntime(process)
  // Only now: on a Node that is too old the native modules would crash before any message.
  const { readSettings } = await import('./settings.ts')
  const settings = readSettings(process.env, process.cwd())
  if (settings.workers > 1) {
    const { startWorkers } = await import('./workers/parent.ts')
    return startWorkers(settings)
  }
  const [{ startGateway }, { nextSteps }] = await Promise.all([
    import('./gateway.ts'),
    import('./next-steps.ts'),
  ])
  const gateway = await startGateway(settings)
  // Before anybody is told that it is ready: who reads that may send a signal at once.
  heedSignals(gateway)
  process.stderr.write(await nextSteps(settings, gateway))
  process.stdout.write(`${JSON.stringify({ msg: 'ready', url: gateway.url, admin_url: gateway.adminUrl })}\n`)
}

function heedSignals(gateway: Gateway): void {
  const stop = (code: number, graceMs?: number): void => {
    void gateway.close(graceMs).then(() => process.exit(code))
  }
  process.on('SIGTERM', () => stop(0))
  process.on('SIGINT', () => stop(0))
  process.on('SIGHUP', () => void gateway.reload())
  const fault = (error: unknown): void => {
    process.stderr.write(`sallyport: stopping: ${error instanceof Error ? error.message : String(error)}\n`)
    stop(1, 2_000)
  }
  process.on('uncaughtException', fault)
  process.on('unhandledRejection', fault)
  void gateway.failed.then(fault)
}
