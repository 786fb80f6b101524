import './no-debugger.ts'
import './v8-flags.ts'
import type { Gateway } from './gateway.ts'
import { refuseUnsafeRuntime } from './runtime-check.ts'
import type { Settings } from './settings.ts'

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
  const [{ startGateway }, { readSettings }] = await Promise.all([
    import('./gateway.ts'),
    import('./settings.ts'),
  ])
  const settings = readSettings(process.env, process.cwd())
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

/** Returns plain lines for the operator at the start: the things that were made, and the next steps. */
async function nextSteps(settings: Settings, gateway: Gateway): Promise<string> {
  const lines = [
    ...gateway.made.map((thing) => `made ${thing}`),
    `listening on ${gateway.url}`,
    ...(gateway.adminUrl === gateway.url ? [] : [`administration on ${gateway.adminUrl}`]),
    ...((await gateway.hasAdminSecret())
      ? []
      : [
          'no operator secret is set: in another terminal, make admin-secret (until then the admin API refuses everyone),',
          `or from elsewhere, once: POST ${gateway.adminUrl}/v1/admin/setup with setup_code ${gateway.setupCode} and new_secret`,
        ]),
    ...keyless(gateway),
    `next, in another terminal: make agent NAME=my-agent CAPS=llm.chat, which writes agents/my-agent and prints a curl line`,
    `data directory: ${settings.dataDir} (back it up; it holds the CA and the audit ledger)`,
  ]
  return `${lines.map((line) => `sallyport: ${line}`).join('\n')}\n`
}

/** Says which providers have no key, and what gives them one. Never a key, nor a part of one. */
function keyless(gateway: Gateway): string[] {
  const { llm, files } = gateway.configuration()
  const file = files.find(({ plugin }) => plugin === 'llm')?.file
  return llm.providers
    .filter(({ api_key: key, auth }) => key === '' && auth !== 'passthrough')
    .map(({ name, keyVariable: variable = `its api_key in ${file}` }) => {
      return `no key for ${name}: set ${variable} and start again; until then its models are answered 503`
    })
}
