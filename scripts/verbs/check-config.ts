import { parseArgs } from 'node:util'
import { messageOf } from '../../db/error-message.ts'
import { ConfigError } from '../../plugins/operator-files/config-error.ts'
import type { Environment } from '../../plugins/operator-files/expand.ts'
import { type Configuration, loadConfiguration } from '../../proxy/configuration.ts'

const HELP = `usage: sallyport check-config [DIR]

Checks the operators' plugin files without starting the gateway: reads every NN-name.yaml in DIR
(default: MCP_PROXY_PLUGINS_DIR, or plugins/config), loads the modules they name, and tries their order.
References such as \${env:NAME} are expanded with the environment of this command.

Exit code: 0 the files work; 1 they do not, each problem on a line file:line:column: message; 2 wrong usage.
`

/** Where a command writes: `process.stdout.write` and `process.stderr.write`, bound. */
export interface Output {
  readonly out: (text: string) => void
  readonly err: (text: string) => void
}

/** The command `check-config`. Resolves to its exit code; rejects only where this program itself is wrong. */
export async function checkConfig(
  args: readonly string[],
  env: Environment,
  { out, err }: Output,
): Promise<number> {
  const asked = readArguments(args)
  if (typeof asked === 'string') {
    err(`${asked}\n\n${HELP}`)
    return 2
  }
  if (asked.help) {
    out(HELP)
    return 0
  }
  const directory = asked.directory ?? (env.MCP_PROXY_PLUGINS_DIR || 'plugins/config')
  try {
    const configuration = await loadConfiguration(directory, env)
    out(`${order(configuration)}\n${directory}: ok (digest ${configuration.digest})\n`)
    return 0
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    err(`${error.message}\n`)
    return 1
  }
}

interface Asked {
  readonly help: boolean
  readonly directory: string | undefined
}

function readArguments(args: readonly string[]): Asked | string {
  try {
    const { values, positionals } = parseArgs({
      args: [...args],
      allowPositionals: true,
      options: { help: { type: 'boolean', short: 'h', default: false } },
    })
    if (positionals.length > 1) return 'check-config: one directory at a time'
    return { help: values.help, directory: positionals[0] }
  } catch (error) {
    return `check-config: ${messageOf(error)}`
  }
}

/** One line per file, in the order in which a call meets them. */
function order({ files }: Configuration): string {
  const width = Math.max(...files.map(({ file }) => file.length))
  return files.map(({ file, plugin }) => `  ${file.padEnd(width)}  ${plugin}`).join('\n')
}

/** Runs the command on this process: its arguments, environment, output and exit code. */
export async function checkConfigVerb(): Promise<void> {
  process.exitCode = await checkConfig(process.argv.slice(2), process.env, {
    out: (text) => process.stdout.write(text),
    err: (text) => process.stderr.write(text),
  })
}

if (import.meta.main) await checkConfigVerb()
