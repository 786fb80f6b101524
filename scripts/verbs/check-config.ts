import { ConfigError } from '../../plugins/operator-files/config-error.ts'
import type { Environment } from '../../plugins/operator-files/expand.ts'
import { type Configuration, loadConfiguration } from '../../proxy/configuration.ts'
import { verbOf, WrongUsage } from '../command.ts'

export const verb = verbOf({
  name: 'sallyport check-config',
  takes: '[DIR]',
  make: 'make check-config',
  about: `Checks the operators' plugin files without starting the gateway: reads every NN-name.yaml in DIR
(default: MCP_PROXY_PLUGINS_DIR, or plugins/config), loads the modules they name, and tries their order.
References such as \${env:NAME} are expanded with the environment of this command.`,
  options: {},
  notes: `Exit code: 0 the files work; 1 they do not, each problem on a line file:line:column: message; 2 wrong usage.`,
  failing: { as: 'check-config', usage: 2, failed: 1 },
  run: async (_, [directory, ...rest]) => {
    if (rest.length > 0) throw new WrongUsage('one directory at a time')
    return checkConfig(directory ?? (process.env.MCP_PROXY_PLUGINS_DIR || 'plugins/config'), process.env, {
      out: (text) => process.stdout.write(text),
      err: (text) => process.stderr.write(text),
    })
  },
})

/** The two outputs of a command: `process.stdout.write` and `process.stderr.write`, bound. */
export interface Output {
  readonly out: (text: string) => void
  readonly err: (text: string) => void
}

/**
 * Checks the files of a directory and resolves to the exit code; rejects only where this program itself is
 * wrong.
 */
export async function checkConfig(
  directory: string,
  env: Environment,
  { out, err }: Output,
): Promise<number> {
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

/** One line per file, in the order in which a call meets them. */
function order({ files }: Configuration): string {
  const width = Math.max(...files.map(({ file }) => file.length))
  return files.map(({ file, plugin }) => `  ${file.padEnd(width)}  ${plugin}`).join('\n')
}
